"""What each exchange answers: one file a venue."""
