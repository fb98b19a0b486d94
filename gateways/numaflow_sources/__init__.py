"""Reads Numaflow sources into topics of the bus: here the platform plays numa."""
