"""Prune and compact: what is hidden, what is folded, and why."""
