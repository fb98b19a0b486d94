"""Ways to hand an alert over."""
