"""Sessions in a database."""
