"""Markets that are read from recordings."""
