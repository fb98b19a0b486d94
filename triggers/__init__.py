"""Registered triggers over the rows of the bus: which ones may run, and how they run together."""
