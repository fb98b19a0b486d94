"""Explains why a text fired or did not: rows, conditions and values, computed only on request."""
