"""The working folder's files, kept in a git repository of our own."""
