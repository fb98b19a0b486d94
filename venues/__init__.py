"""Tickers, periods and the candle grid: the facts on which all parts must agree, free of any library."""
