"""Plans over growing inputs: state, release in event order, and events batch by batch."""
