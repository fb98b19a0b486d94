"""A Numaflow user-defined source over topics of the bus."""
