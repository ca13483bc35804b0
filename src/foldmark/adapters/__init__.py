"""Adapters: Foldmark inside other people's frameworks. Each needs its framework, as an extra."""
