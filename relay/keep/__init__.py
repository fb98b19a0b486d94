"""Candles that are kept fresh: rules, how far each series is, and the requests that follow."""
