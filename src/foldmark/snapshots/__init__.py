"""Snapshots of the working folder's files, in a git repository of our own."""
