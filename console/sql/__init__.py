"""Clients' queries over the tables."""
