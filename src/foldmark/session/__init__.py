"""Stored sessions: the only package that keeps state."""
