"""What is known of each exchange: one file a venue."""
