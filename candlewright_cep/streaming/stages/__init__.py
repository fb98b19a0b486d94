"""The operators of a stream: filters, OVER, windows, bars, and the order of their results."""
