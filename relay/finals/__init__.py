"""Final notifications, for subscribers now and later."""
