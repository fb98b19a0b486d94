"""What clients and servers share: messages and their frames, errors, tickers, periods, the grid of candles, keys."""
