"""All messages of a session, and the view of them that a model is shown."""
