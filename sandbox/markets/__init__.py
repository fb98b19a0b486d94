"""A market's candles, trades and instruments, and the queries that every market answers."""
