"""Live trades to bars, ticks and gaps."""
