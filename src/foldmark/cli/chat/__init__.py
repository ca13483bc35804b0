"""`foldmark run` from its options to its screen."""
