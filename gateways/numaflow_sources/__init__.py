"""Reads Numaflow sources into topics of the bus: here the platform takes numa's role."""
