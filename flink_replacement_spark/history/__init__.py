"""Writes requested candles to the table, and ends requests."""
