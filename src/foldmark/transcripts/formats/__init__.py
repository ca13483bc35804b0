"""One module for each transcript format."""
