"""Model calls."""
