"""Delivers events to people and programs: see README.md."""
