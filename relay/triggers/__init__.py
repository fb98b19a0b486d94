"""Registered triggers: their changes, checks, events and suspensions."""
