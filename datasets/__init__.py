"""Stored candles as data sets: what is stored, how good it is, and files for other tools."""
