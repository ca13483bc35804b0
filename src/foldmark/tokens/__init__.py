"""Counting tokens, and how many a window holds."""
