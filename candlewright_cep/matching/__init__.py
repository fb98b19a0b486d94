"""Row patterns: compiled, pruned and searched."""
