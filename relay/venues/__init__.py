"""The venues and tickers that the relay knows."""
