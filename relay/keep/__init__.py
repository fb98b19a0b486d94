"""Keeps candles fresh: rules, the progress of each series, and the requests that follow."""
