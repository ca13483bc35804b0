"""A session in figures."""
