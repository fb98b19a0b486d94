"""Live topics: who wants them, the jobs they need, and their records."""
