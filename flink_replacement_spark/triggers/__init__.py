"""The query of all registered triggers."""
