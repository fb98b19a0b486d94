"""Whether users get what they run the driver for: queries that move, executors, bars. Pure; times are in seconds.

A query that is "running" by Spark's word can stand still for good: its executors are gone, or a call into the catalog
does not return. So each look compares what has come to a topic with what was done about it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A query with records to read that makes no step for so long is named; after the second bound it is a problem.
SLOW_SECONDS, STUCK_SECONDS = 20.0, 60.0
#: A cluster's driver that has had executors and has none for so long begins anew: a master that lost its
#: memory, or came back elsewhere, gives this application no other.
LOST_SECONDS = 30.0
#: Trades that come for so long, without one bar in their partition.
BARLESS_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One query at one time. `marker` changes with every step, `ends`: of the partitions of what it reads; `held`: what
    it has not finished begins there; `is_idle`: it has found nothing more to read.
    """

    marker: object
    stepped_at: float
    ends: Sequence[int]
    held: Mapping[int, int]
    is_idle: bool


@dataclass(slots=True)
class _Pace:
    marker: object = None
    stepped_at: float = 0.0
    ends_at_step: tuple[int, ...] = ()
    waiting_since: float | None = None
    lag: dict[int, int] = field(default_factory=dict)

    def observe(self, reading: Reading, at: float) -> None:
        ends = tuple(reading.ends)
        if reading.marker != self.marker or not self.ends_at_step:
            self.marker, self.ends_at_step, self.waiting_since = reading.marker, ends, None
        elif self.waiting_since is None and ends != self.ends_at_step:
            self.waiting_since = at
        self.stepped_at = reading.stepped_at
        is_done = reading.is_idle and ends == self.ends_at_step
        # What is held may be a step behind what was read.
        self.lag = {} if is_done else {p: max(0, end - reading.held.get(p, end)) for p, end in enumerate(ends)}

    def waits(self, at: float) -> float:
        return 0.0 if self.waiting_since is None else at - self.waiting_since


@dataclass(slots=True)
class Vitals:
    paces: dict[str, _Pace] = field(default_factory=dict)
    #: None with a local master, which has no executors of its own.
    executors: int | None = None
    _had_executors: bool = False
    _lost_since: float | None = None
    _ticks: tuple[int, ...] = ()
    _bars: tuple[int, ...] = ()
    _barless_since: dict[int, float] = field(default_factory=dict)
    _ticked_at: dict[int, float] = field(default_factory=dict)

    def observe_query(self, name: str, reading: Reading, at: float) -> None:
        self.paces.setdefault(name, _Pace()).observe(reading, at)

    def observe_executors(self, count: int | None, at: float) -> None:
        self.executors = count
        if count is None or count > 0:
            self._had_executors = self._had_executors or bool(count)
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = at

    def observe_bars(self, ticks: Sequence[int], bars: Sequence[int], at: float) -> None:
        """Ends of the partitions of `ticks` and `ohlc`: a ticker has the same number in both."""
        for p, (end, bar_end) in enumerate(zip(ticks, bars, strict=False)):
            was, bar_was = (self._ticks[p], self._bars[p]) if p < len(self._ticks) else (end, bar_end)
            if end != was:
                if at - self._ticked_at.get(p, -BARLESS_SECONDS) > BARLESS_SECONDS / 2:
                    # They begin, or begin again: the minute that they are in is still open.
                    self._barless_since[p] = at
                self._ticked_at[p] = at
            if bar_end != bar_was:
                self._barless_since[p] = at
        self._ticks, self._bars = tuple(ticks), tuple(bars)

    def lost_executors_seconds(self, at: float) -> float:
        """How long there have been none, where there were some."""
        return at - self._lost_since if self._had_executors and self._lost_since is not None else 0.0

    def must_begin_anew(self, at: float) -> bool:
        return self.lost_executors_seconds(at) >= LOST_SECONDS

    def is_well(self, at: float) -> bool:
        return self.executors != 0 and all(pace.waits(at) < STUCK_SECONDS for pace in self.paces.values())

    def problems(self, at: float) -> Iterator[str]:
        if self._lost_since is not None:
            yield (
                f"no executors for {at - self._lost_since:.0f} s: see whether the Spark master and its workers run and "
                "have cores free"
            )
        for name, pace in self.paces.items():
            if (waits := pace.waits(at)) >= STUCK_SECONDS:
                yield f"the {name} query has made no step for {waits:.0f} s, with {_lag_text(pace)}"

    def warnings(self, at: float) -> Iterator[str]:
        for name, pace in self.paces.items():
            if SLOW_SECONDS <= (waits := pace.waits(at)) < STUCK_SECONDS:
                yield f"the {name} query has made no step for {waits:.0f} s, with {_lag_text(pace)}"
        for p, since in self._barless_since.items():
            if at - since >= BARLESS_SECONDS and at - self._ticked_at[p] < BARLESS_SECONDS / 2:
                yield f"no bar for {at - since:.0f} s although trades come (partition {p})"

    def to_json(self, at: float) -> dict[str, Any]:
        return {
            "executors": self.executors,
            "queries": {
                name: {
                    "lag": sum(pace.lag.values()),
                    "lag_by_partition": {str(p): lag for p, lag in pace.lag.items() if lag},
                    "last_step_seconds_ago": round(max(0.0, at - pace.stepped_at), 1),
                    "waits_seconds": round(pace.waits(at), 1),
                }
                for name, pace in self.paces.items()
            },
        }


def _lag_text(pace: _Pace) -> str:
    behind = {p: lag for p, lag in pace.lag.items() if lag}
    worst = max(behind, key=lambda p: behind[p], default=None)
    total = f"{sum(behind.values()):,} records waiting"
    return total if worst is None or len(behind) == 1 else f"{total} (most in partition {worst}: {behind[worst]:,})"
