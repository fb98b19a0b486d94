"""Candles: requested, stored, and read."""
