"""The built-in transcript formats, one module for each program or API."""
