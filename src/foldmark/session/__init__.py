"""A session and what belongs to it: the one layer that holds state."""
