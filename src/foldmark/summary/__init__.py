"""How a summary is asked for, and what to do if it fails."""
