"""Sessions stored in a database."""
