"""`foldmark.fit`: one call, no store. The package is not named `fit`, as the function is."""
