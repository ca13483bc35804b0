"""The agent: a loop around a session, its tools, its snapshots."""
