"""Numaflow sources that are read into topics of the bus: here the platform plays numa."""
