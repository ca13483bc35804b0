"""The demonstration and its recorded sample."""
