"""From the tree of a query to a checked plan that computes it."""
