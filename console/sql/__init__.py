"""Clients' queries over the tables, in a separate process."""
