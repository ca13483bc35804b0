"""A small JSON API for orders, on the standard library alone."""
