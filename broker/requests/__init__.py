"""Requests and their jobs, from admission to the end."""
