"""Technical indicators and candle patterns, over the rows of a partition in their order."""
