"""Turns the syntax tree of a query into a checked plan that computes it."""
