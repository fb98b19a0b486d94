"""Live topics as gapless sequences."""
