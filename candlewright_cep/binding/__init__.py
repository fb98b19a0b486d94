"""Turns the syntax tree into typed expressions, and evaluates them."""
