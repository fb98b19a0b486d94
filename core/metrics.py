"""Counters, gauges and histograms, named `candlewright_<part>_<thing>_<unit|total>`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["REGISTRY", "Counter", "Gauge", "Histogram", "render"]

REGISTRY = CollectorRegistry()


def render() -> bytes:
    """The Prometheus text page of this process."""
    return generate_latest(REGISTRY)
