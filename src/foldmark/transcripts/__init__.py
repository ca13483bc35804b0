"""Reads, imports and writes transcripts of other programs."""
