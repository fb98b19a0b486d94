"""Tickers, periods and the candle grid: what all parts must agree on, free of any library."""
