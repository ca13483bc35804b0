"""`foldmark.fit`: one call, no store. The package is not named `fit` like the function."""
