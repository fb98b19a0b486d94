"""Serves the HTTP API and the console: see README.md."""
