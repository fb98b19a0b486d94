"""Triggers and their events."""
