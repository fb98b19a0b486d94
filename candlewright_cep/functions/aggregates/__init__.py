"""Functions of many rows: over groups, over frames, and one row at a time."""
