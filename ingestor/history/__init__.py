"""Exactly the candles of a range."""
