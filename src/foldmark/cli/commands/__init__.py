"""The commands, one module per command or family."""
