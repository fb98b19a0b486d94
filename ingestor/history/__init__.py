"""Fetches exactly the candles of a range."""
