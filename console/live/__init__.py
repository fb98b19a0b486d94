"""Live topics for many readers over one subscription each."""
