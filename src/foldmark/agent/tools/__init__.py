"""The tools that are built in."""
