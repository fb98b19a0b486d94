"""Everything that the broker reads from the bus and writes to it."""
