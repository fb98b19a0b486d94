"""Parses text to a tree of what was written and where. Nothing is resolved yet."""
