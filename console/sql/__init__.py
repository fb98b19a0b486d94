"""Queries of clients over the tables, in a process of their own."""
