"""Registered triggers over the rows of the bus: what may run, and how all of them run together."""
