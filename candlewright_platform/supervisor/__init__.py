"""`candlewright up`: starts, watches, restarts and stops the parts of the platform."""
