"""The answers of each exchange, one file per venue."""
