"""Requested candles into the table, and how requests end."""
