"""Prune and compact: which outputs are hidden, which messages are folded, and why."""
