"""Which venues and tickers exist, as far as the relay knows."""
