"""Spark itself: session, workers, sources, and queries that are restarted."""
