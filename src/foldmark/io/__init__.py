"""What touches the world: files now, models and stores later."""
