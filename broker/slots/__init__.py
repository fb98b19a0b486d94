"""Free slots, fair turns, and room for results."""
