"""A summary made without a model."""
