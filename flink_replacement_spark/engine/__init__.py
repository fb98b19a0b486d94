"""What all queries share: their sources, checkpoints and modes, the steps of tasks that serve, and how they write."""
