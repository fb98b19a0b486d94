"""Carries counts from the tasks of the live query to the driver; the tasks publish their results themselves."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import pyarrow as pa

from core import metrics
from core.log import get_logger
from flink_replacement_spark.live.partition import LiveOutput

__all__ = ["RESULT_SCHEMA", "LiveCounts", "LiveHealth", "counts_of"]

log = get_logger()

_BARS = metrics.Counter("candlewright_spark_bars_total", "Bars published.", ["kind"], registry=metrics.REGISTRY)
_TICKS = metrics.Counter("candlewright_spark_ticks_total", "New trades to store.", registry=metrics.REGISTRY)
_GAPS = metrics.Counter("candlewright_spark_gaps_total", "Gaps reported.", registry=metrics.REGISTRY)
_DUPLICATES = metrics.Counter(
    "candlewright_spark_duplicate_trades_total", "Trades counted before.", registry=metrics.REGISTRY
)
_TOO_LATE = metrics.Counter(
    "candlewright_spark_too_late_trades_total", "Trades of bars that were already dropped.", registry=metrics.REGISTRY
)
_BAD = metrics.Counter(
    "candlewright_spark_bad_ticks_total", "Records or trades that could not be read.", registry=metrics.REGISTRY
)


@dataclass(kw_only=True, slots=True)
class LiveCounts:
    """The counts of one micro-batch."""

    first_bars: int = 0
    revisions: int = 0
    ticks: int = 0
    gaps: int = 0
    duplicates: int = 0
    too_late: int = 0
    bad_records: int = 0

    @classmethod
    def of(cls, rows: pa.Table) -> "LiveCounts":
        """The sum of the rows that all tasks returned."""
        return cls(**{name: sum(rows[name].to_pylist()) for name in _NAMES})

    def counted(self) -> dict[str, int]:
        """The counts that are not 0, by name."""
        return {name: count for name in _NAMES if (count := getattr(self, name))}

    def rows(self) -> Iterator[pa.RecordBatch]:
        """As a task's rows of RESULT_SCHEMA: one, or none if nothing happened."""
        if self.counted():
            counts = [pa.array([getattr(self, name)], pa.int64()) for name in _NAMES]
            yield pa.RecordBatch.from_arrays(counts, names=_NAMES)


_NAMES = [part.name for part in fields(LiveCounts)]
RESULT_SCHEMA = ", ".join(f"{name} long" for name in _NAMES)


def counts_of(output: LiveOutput, duplicates: int, too_late: int) -> LiveCounts:
    published = sum(len(made.revision) for _, made in output.bars)
    first = sum(int((made.revision == 0).sum()) for _, made in output.bars)
    return LiveCounts(
        first_bars=first,
        revisions=published - first,
        ticks=sum(map(len, output.ticks)),
        gaps=len(output.gaps),
        duplicates=duplicates,
        too_late=too_late,
        bad_records=output.bad_records,
    )


@dataclass(kw_only=True)
class LiveHealth:
    """The live query's state for the status page."""

    batches: int = 0
    bars: int = 0
    ticks: int = 0
    gaps: int = 0
    duplicates: int = 0
    too_late: int = 0
    bad_records: int = 0
    last_batch_at: float = field(default_factory=time.time)

    def add(self, counts: LiveCounts, batches: int = 1) -> None:
        """Add the counts of micro-batches, or steps, whose results are on the bus."""
        self.batches += batches
        self.last_batch_at = time.time()
        self.bars += counts.first_bars
        self.ticks += counts.ticks
        self.gaps += counts.gaps
        self.duplicates += counts.duplicates
        self.too_late += counts.too_late
        self.bad_records += counts.bad_records
        _BARS.labels("first").inc(counts.first_bars)
        _BARS.labels("revision").inc(counts.revisions)
        _TICKS.inc(counts.ticks)
        _GAPS.inc(counts.gaps)
        _DUPLICATES.inc(counts.duplicates)
        _TOO_LATE.inc(counts.too_late)
        _BAD.inc(counts.bad_records)
        if counts.too_late or counts.bad_records:
            log.warning("trades_not_counted", too_late=counts.too_late, unreadable=counts.bad_records)
