"""MATCH_RECOGNIZE over a growing input: its partitions, their searches, and their state."""
