"""Transcripts of other programs: reading, storing and writing them."""
