"""Tables follow topics: a thread of the driver that writes the records of a topic to a table, each once.

The producer publishes a record and continues; a slow, busy or locked table delays only this thread. Records that have
not reached the table are held on the bus, and their age is the lag shown in `/status`. Records are gathered, since each
commit is a file and a snapshot: the first records after a pause are in their table within a second, and while records
trickle in, the time between two commits grows to MAX_INTERVAL_SECONDS. Records of a flood are read while more arrive,
and stored together.

Exactly once: the records that a commit takes are noted on the bus before it, its snapshot carries its name, and its
completion is noted on the bus after it. A follower that finds an unfinished commit checks whether it succeeded. If the
bus has lost taken records, the follower continues at the first record that replaced a lost one.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from bus import Bus, Lives, PartitionState, StoredRecord, TopicPartition
from bus.dead_letters import Letter, put_aside
from bus.lost import report
from candlewright.wire.errors import OffsetOutOfRange, RecordsLost
from core import metrics
from core.log import get_logger
from core.poison import is_poison, refused
from flink_replacement_spark.engine.bus_source import lives_of, written_lives
from flink_replacement_spark.tables.taken_records import Decode, DecodedRun, TakenRecords, places_of

__all__ = ["Followed", "Follower", "Taken"]

log = get_logger()

INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 1.0, 5.0
FIRST_PAUSE_SECONDS = 0.05
_NOTHING: Mapping[TopicPartition, int] = MappingProxyType({})
#: How often (s) an unmoved hold is written again, since the bus may have lost it.
_HOLD_SECONDS = 30.0
#: A table that lags further (s) behind its topic is reported as a problem.
LAG_WARNING_SECONDS = 60.0
MAX_PAUSE_SECONDS = 5.0
#: The most records of one commit.
_BYTES = 64 << 20
#: Many records wait until no more have followed for this long (s), and at most this long altogether, because a commit
#: of a few thousand costs nearly as much as one of all that follow.
_FOLLOW_SECONDS, _GATHER_SECONDS = 0.02, 0.5

_STORED = metrics.Counter(
    "candlewright_spark_followed_records_total",
    "Records whose rows are in their table.",
    ["table"],
    registry=metrics.REGISTRY,
)
_FAILURES = metrics.Counter(
    "candlewright_spark_follow_failures_total",
    "Commits of followed records that failed and were retried.",
    ["table"],
    registry=metrics.REGISTRY,
)
_BACKLOG = metrics.Gauge(
    "candlewright_spark_followed_backlog_records",
    "Records that have not reached their table.",
    ["table"],
    registry=metrics.REGISTRY,
)
_LAG = metrics.Gauge(
    "candlewright_spark_followed_lag_seconds",
    "Age of the oldest record that a commit has taken and not brought into its table.",
    ["table"],
    registry=metrics.REGISTRY,
)
_DELAYS = metrics.Histogram(
    "candlewright_spark_followed_delay_seconds",
    "From the publication of a record to its row in the table; of the oldest of each commit.",
    ["table"],
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
    registry=metrics.REGISTRY,
)


@dataclass(kw_only=True, frozen=True, slots=True)
class Followed:
    """A topic and how it is followed. `state`: the table on the bus with the follower's position. `many_records` cause
    a commit at once; fewer wait for a moment. `digest`: the pure part of storing records, which fails only for a record
    that cannot be stored. `decode`: for `TakenRecords`; with it, many records are decoded while more follow.
    """

    topic: str
    reader: str
    state: str
    max_records: int
    many_records: int
    digest: Callable[[Sequence[StoredRecord]], object] = len
    decode: Decode | None = None


@dataclass(kw_only=True, frozen=True, slots=True)
class Taken:
    """The records of one commit. `start`, `end`: by partition, the first offset and the one after the last. `name` is
    unique, even if a new bus starts again with its offsets. `is_repeat`: its rows may already be in the table.
    `moments`: by partition, the bus's millisecond of the record before `start`, and the offset at which that
    millisecond began.
    """

    number: int
    name: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    records: Sequence[StoredRecord]
    is_repeat: bool
    moments: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def moments_after(self) -> dict[int, tuple[int, int]]:
        """The `moments` of the next commit."""
        found = dict(self.moments)
        partitions, offsets, times_ms = places_of(self.records)
        for partition in np.unique(partitions).tolist():
            is_own = partitions == partition
            times, own = times_ms[is_own], offsets[is_own]
            others = np.flatnonzero(times != times[-1])
            if len(others) or found.get(partition, (-1, 0))[0] != times[-1]:
                found[partition] = int(times[-1]), int(own[others[-1] + 1 if len(others) else 0])
        return found


class Follower:
    """`store` writes the rows of what was taken, and must be harmless when it runs again (`Taken.is_repeat`).

    `run` returns when `stopping` is set; `flush` then commits what is left.
    """

    def __init__(
        self,
        bus: Bus,
        followed: Followed,
        store: Callable[[Taken], None],
        *,
        stopping: threading.Event,
    ) -> None:
        self.topic = followed.topic
        self._label = followed.reader
        #: Why the last commit failed.
        self.problem = ""
        self.stored_records = 0
        self.backlog_records = 0
        self._bus = bus
        self._followed = followed
        self._store = store
        self._stopping = stopping
        self._committed_at = -INTERVAL_SECONDS
        #: The current time (s) between commits.
        self._interval = INTERVAL_SECONDS
        #: The time (s) until the next look at records that wait for a commit.
        self._pause = FIRST_PAUSE_SECONDS
        #: The end of each partition, while there is nothing to commit.
        self._ends: dict[TopicPartition, int] = {}
        #: The newest commit noted on the bus, once read; None without any.
        self._newest: dict[str, Any] | None = None
        self._is_asked = False
        #: The hold before the first commit, and when it was written.
        self._held: tuple[Mapping[int, int], float] = {}, -_HOLD_SECONDS
        self._open: Taken | None = None
        #: Records of the next commit, by partition, and the lives of the partitions when they were read.
        self._ahead: dict[int, list[DecodedRun]] = {}
        self._ahead_lives: Sequence[str] = ()
        self._lives: Lives | None = None
        #: Taken records that the bus has lost since.
        self.lost_records = 0
        _LAG.labels(self._label).set_function(lambda: self.lag_seconds)

    @property
    def warning(self) -> str:
        """A warning if the table lags far behind, for example while others write it."""
        lag = self.lag_seconds
        return f"{self._label} is {lag:.0f} s behind the topic {self.topic}" if lag > LAG_WARNING_SECONDS else ""

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest record that a commit has taken but not yet written to the table."""
        return 0.0 if self._open is None else _age_seconds(self._open)

    def status(self) -> dict[str, Any]:
        return {
            "stored_records": self.stored_records,
            "backlog_records": self.backlog_records,
            "lost_records": self.lost_records,
            "lag_seconds": round(self.lag_seconds, 1),
        }

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                self._round()
                self.problem, pause = "", 0.0
            except Exception as error:  # Any other error is logged, counted and retried.
                _FAILURES.labels(self._label).inc()
                self.problem = f"rows of {self.topic} cannot be written: {error}"
                log.warning(
                    "follow_retried", topic=self.topic, table=self._label, error=str(error), kind=type(error).__name__
                )
                pause = min(max(INTERVAL_SECONDS, 2 * pause), MAX_PAUSE_SECONDS)

    def flush(self) -> None:
        """Commit the remaining records, unless commits fail. Call after `run` has returned."""
        while not self.problem and self.step():
            pass

    def _round(self) -> None:
        self._look()
        since = time.monotonic() - self._committed_at
        is_many = self.backlog_records >= self._followed.many_records
        if is_many or (self.backlog_records and since >= self._interval):
            had_pause = since >= self._interval + INTERVAL_SECONDS
            if is_many and self._followed.decode is not None:
                self._gather()
            self.step()
            self._interval = INTERVAL_SECONDS if is_many or had_pause else min(2 * self._interval, MAX_INTERVAL_SECONDS)
            self._pause = FIRST_PAUSE_SECONDS
        elif self.backlog_records:
            # Short at first, so that a table follows a flood of records from its beginning.
            self._stopping.wait(min(self._pause, self._interval - since))
            self._pause = min(2 * self._pause, INTERVAL_SECONDS)

    def _gather(self) -> None:
        """Wait while more records follow, and read them meanwhile, so that little is left to do once all are there."""
        until = time.monotonic() + _GATHER_SECONDS
        while self._open is None and self.backlog_records < self._followed.max_records and time.monotonic() < until:
            self._read(*self._range(self._states()))
            before = self.backlog_records
            if self._stopping.wait(_FOLLOW_SECONDS):
                return
            self._look()
            if self.backlog_records == before:
                return

    def _look(self) -> None:
        """See what waits; if nothing did, wait a moment for records."""
        states = self._states(after=self._ends)
        waiting = self._open or self._resume()
        start = waiting.start if waiting is not None else self._start(states)
        self.backlog_records = sum(max(0, state.end - start.get(p, 0)) for p, state in enumerate(states))
        ends = {(self.topic, partition): state.end for partition, state in enumerate(states)}
        self._ends = {} if self.backlog_records else ends
        _BACKLOG.labels(self._label).set(self.backlog_records)

    def step(self) -> bool:
        """Commit the waiting records; False if there are none."""
        taken = self._open or self._resume() or self._take()
        if taken is None:
            return False
        self._open = replace(taken, is_repeat=True)
        try:
            self._store(taken)
        except Exception as error:  # A record that cannot be stored must not stop later ones.
            if not is_poison(error) or not (bad := refused(taken.records, self._followed.digest)):
                raise
            put_aside(self._bus, f"table of {self.topic}", [Letter.of(record, reason) for record, reason in bad])
            places = {(record.partition, record.offset) for record, _ in bad}
            kept = [record for record in taken.records if (record.partition, record.offset) not in places]
            self._store(replace(taken, records=kept))
        self._remember(taken, is_done=True)
        self._open = None
        self._bus.hold(self.topic, self._followed.reader, taken.end)
        self._committed_at = time.monotonic()
        self.stored_records += len(taken.records)
        _STORED.labels(self._label).inc(len(taken.records))
        _DELAYS.labels(self._label).observe(_age_seconds(taken))
        return True

    # ---- which records
    def _resume(self) -> Taken | None:
        """The records of a commit that was begun but may not be done."""
        newest = self._known()
        if newest is None or newest["done"]:
            return None
        # The bus may have lost the records since, and have others at their offsets.
        self._states()
        newest = self._known()
        if newest is None or newest["done"]:
            return None
        start, end = _offsets(newest["start"]), _offsets(newest["end"])
        try:
            name = newest.get("name") or f"{self._identity()}:{newest['number']}"
            return self._taken(newest["number"], name, start, end, _moments(newest), is_repeat=True)
        except OffsetOutOfRange as error:
            # They are held, so their absence means that the bus has lost them.
            log.error("followed_records_lost", topic=self.topic, error=str(error))
            self._remember(
                Taken(number=newest["number"], name="", start=start, end=end, records=(), is_repeat=True), is_done=True
            )
            return None

    def _states(self, after: Mapping[TopicPartition, int] = _NOTHING) -> list[PartitionState]:
        """The topic's state on the bus, after checking that it still has the taken records; with `after` once it has
        newer ones, or after a moment.
        """
        if after:
            found = self._bus.states_after(after, INTERVAL_SECONDS)
            states = [found[place] for place in sorted(found)]
        else:
            states = self._bus.state(self.topic)
        newest = self._known()
        if newest is not None:
            if self._lives is None:
                self._lives = lives_of(newest)
            try:
                self._lives.check_all(self.topic, _offsets(newest["end"]), states)
            except RecordsLost as error:
                report(self._bus, error)
                self._rewind(self._lives, newest, states)
        return states

    def _rewind(self, lives: Lives, newest: Mapping[str, Any], states: Sequence[PartitionState]) -> None:
        end, kept = _offsets(newest["end"]), {}
        for partition, state in enumerate(states):
            place, offset = (self.topic, partition), end.get(partition, 0)
            kept[partition] = lives.rewound(place, offset, state.lives, end=state.end)
            self.lost_records += offset - kept[partition]
        moments = {p: (time_ms, at) for p, (time_ms, at) in _moments(newest).items() if at < kept.get(p, 0)}
        self._open = None
        self._remember(
            Taken(number=newest["number"], name="", start=kept, end=kept, records=(), is_repeat=True, moments=moments),
            is_done=True,
        )
        self._bus.hold(self.topic, self._followed.reader, kept)
        log.error("followed_records_lost", topic=self.topic, read_to=end, kept_to=kept)

    def _take(self) -> Taken | None:
        """Choose the records of the next commit and note them on the bus; None if there are none."""
        start, end = self._range(self._states())
        if start == end:
            return None
        newest = self._known()
        number = 0 if newest is None else newest["number"] + 1
        # A bus that has lost records assigns their numbers again.
        name = f"{self._identity()}:{number}:{secrets.token_hex(4)}"
        taken = self._taken(number, name, start, end, _moments(newest or {}), is_repeat=False)
        self._remember(taken, is_done=False)
        return taken

    def _taken(
        self,
        number: int,
        name: str,
        start: Mapping[int, int],
        end: Mapping[int, int],
        moments: Mapping[int, tuple[int, int]],
        *,
        is_repeat: bool,
    ) -> Taken:
        runs = self._read(start, end)
        self._ahead = {}
        return Taken(
            number=number,
            name=name,
            start=start,
            end=end,
            records=TakenRecords([each.run for each in runs], [each.decoded for each in runs]),
            is_repeat=is_repeat,
            moments=moments,
        )

    def _range(self, states: Sequence[PartitionState]) -> tuple[dict[int, int], dict[int, int]]:
        """Where the next commit starts and ends, by partition."""
        kept = sum(state.end - state.first for state in states)
        size = sum(state.size_bytes for state in states)
        left = min(self._followed.max_records, max(1, _BYTES * kept // max(1, size)))
        before = self._start(states)
        start: dict[int, int] = {}
        end: dict[int, int] = {}
        for partition, state in enumerate(states):
            first = start[partition] = min(state.end, max(state.first, before.get(partition, 0)))
            end[partition] = min(state.end, first + left)
            left -= end[partition] - first
        lives = [state.lives for state in states]
        if lives != self._ahead_lives:
            # What was read may have been replaced.
            self._ahead, self._ahead_lives = {}, lives
        return start, end

    def _read(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[DecodedRun]:
        """These records, which are kept until they are taken."""
        for partition, stop in end.items():
            at, own = start[partition], self._ahead.get(partition, [])
            if own and (own[0].run.offset != at or own[-1].end > stop):
                own = []
            runs = self._bus.read_runs(self.topic, partition, first=own[-1].end if own else at, end=stop)
            self._ahead[partition] = own + [DecodedRun.of(run, self._followed.decode) for run in runs]
        return [run for partition in end for run in self._ahead[partition]]

    def _start(self, states: Sequence[PartitionState]) -> Mapping[int, int]:
        newest = self._known()
        if newest is not None:
            return _offsets(newest["end"])
        first = {partition: state.first for partition, state in enumerate(states)}
        self._lives = Lives()
        self._lives.start(self.topic, states)
        held, held_at = self._held
        if first != held or time.monotonic() >= held_at + _HOLD_SECONDS:
            self._bus.hold(self.topic, self._followed.reader, first)
            self._held = first, time.monotonic()
        return first

    # ---- notes on the bus
    def _identity(self) -> str:
        (found,) = self._bus.get(self._followed.state, ["identity"])
        if found is None:
            found = f"{time.time_ns():x}".encode()
            self._bus.put(self._followed.state, {"identity": found})
        return found.decode()

    def _known(self) -> dict[str, Any] | None:
        if not self._is_asked:
            (found,) = self._bus.get(self._followed.state, ["taken"])
            self._newest = None if found is None else dict(json.loads(found))
            self._is_asked = True
        return self._newest

    def _remember(self, taken: Taken, *, is_done: bool) -> None:
        record = {
            "number": taken.number,
            "start": dict(taken.start),
            "end": dict(taken.end),
            "moments": taken.moments_after() if is_done else dict(taken.moments),
            "done": is_done,
            "name": taken.name,
            **written_lives(self._lives or Lives()),
        }
        self._is_asked = False
        self._bus.put(self._followed.state, {"taken": json.dumps(record).encode()})


def _age_seconds(taken: Taken) -> float:
    now_ms = time.time_ns() // 1_000_000
    return max(0, now_ms - int(places_of(taken.records).time_ms.min(initial=now_ms))) / 1_000


def _offsets(written: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in written.items()}


def _moments(remembered: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    found = remembered.get("moments", {})
    return {int(partition): (time_ms, offset) for partition, (time_ms, offset) in found.items()}
