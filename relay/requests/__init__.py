"""Requests for history: validation, and long answers."""
