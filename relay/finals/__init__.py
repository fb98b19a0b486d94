"""Final notifications, for current and later subscribers."""
