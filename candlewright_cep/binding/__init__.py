"""From the tree to typed expressions, and their values."""
