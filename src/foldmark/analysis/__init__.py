"""Analysis of sessions: inspection, history, plans and needed references."""
