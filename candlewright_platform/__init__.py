"""The application: the supervisor behind `candlewright up`."""
