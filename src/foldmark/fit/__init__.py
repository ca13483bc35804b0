"""`foldmark.fit`: one call, no store."""
