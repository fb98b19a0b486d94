"""Metrics for alerts in Prometheus: the same figures as on the status page."""

import math

from core import metrics
from flink_replacement_spark.driver.vitals import Vitals

__all__ = ["export"]

_LAG = metrics.Gauge(
    "candlewright_spark_query_lag_records",
    "Records that a query has not finished.",
    ["query", "partition"],
    registry=metrics.REGISTRY,
)
_STEP = metrics.Gauge(
    "candlewright_spark_query_last_step_seconds",
    "Since the last step of a query, which may have nothing to read.",
    ["query"],
    registry=metrics.REGISTRY,
)
_WAITS = metrics.Gauge(
    "candlewright_spark_query_waits_seconds",
    "How long a query has had records to read and made no step.",
    ["query"],
    registry=metrics.REGISTRY,
)
_EXECUTORS = metrics.Gauge(
    "candlewright_spark_executors", "Of a cluster; NaN with a local master, which has none.", registry=metrics.REGISTRY
)
_NEWEST_BAR = metrics.Gauge(
    "candlewright_spark_newest_bar_seconds",
    "The largest age of a newest bar among the live tickers that trade.",
    registry=metrics.REGISTRY,
)
_WITHOUT_BARS = metrics.Gauge(
    "candlewright_spark_tickers_without_bars",
    "Live tickers whose trades arrive but whose bars do not.",
    registry=metrics.REGISTRY,
)


def export(vitals: Vitals, at: float) -> None:
    for name, pace in vitals.paces.items():
        _STEP.labels(name).set(max(0.0, at - pace.stepped_at))
        _WAITS.labels(name).set(pace.waits(at))
        for partition in range(len(pace.ends_at_step)):
            _LAG.labels(name, partition).set(pace.lag.get(partition, 0))
    _EXECUTORS.set(math.nan if vitals.executors is None else vitals.executors)
    _NEWEST_BAR.set(vitals.oldest_bar_seconds(at))
    _WITHOUT_BARS.set(len(vitals.tickers_without_bars(at)))
