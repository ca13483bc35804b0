"""The data model: values, messages, and the records stored beside them."""
