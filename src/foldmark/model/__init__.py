"""The data model: values, messages, and the records kept beside them."""
