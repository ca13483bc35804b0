"""Foldmark keeps an agent's session whole, and shows the model a view of it that fits."""
