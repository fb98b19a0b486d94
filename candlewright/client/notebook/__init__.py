"""What notebooks show: cards with a small picture, progress, and a live chart."""
