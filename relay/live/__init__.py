"""Live topics: their subscribers, the jobs that they need, and their records."""
