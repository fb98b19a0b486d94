"""Commands about the platform on this machine: starting it, its doors, its health, its benchmarks."""
