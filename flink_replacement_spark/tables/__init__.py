"""Tables that follow topics, and their upkeep."""
