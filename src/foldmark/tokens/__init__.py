"""Token counts, model limits, and the budget of a window."""
