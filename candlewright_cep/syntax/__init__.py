"""From text to a tree: what was written and where, nothing resolved yet."""
