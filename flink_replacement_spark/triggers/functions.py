"""Runs the external functions that triggers name, in the driver: from rows that tasks publish to events, each once.

They run here and not in the tasks, whose processes are shared and end when idle, because a function is one process for
as long as its trigger runs. The tasks publish a function's rows with the step that they belong to, and a thread of the
driver takes what has come. The state after that and the outputs are stored together before anything is published, so
what is taken again publishes the same, or starts over if nothing was stored.
"""

import json
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import takewhile

from bus import Bus, StoredRecord
from bus import topics as bus_topics
from core import metrics
from core.log import get_logger
from core.settings_gateways import KapacitorFunctionSettings
from flink_replacement_spark.engine.writes import Direct
from flink_replacement_spark.tables.follower import Followed, Taken
from flink_replacement_spark.triggers.rows import publish_events, publish_progress
from protobuf.records_pb2 import FunctionRows
from triggers.events.firings import Fired
from triggers.running.outcome import TriggerReport
from triggers.udf.asked import FunctionAsked
from triggers.udf.hosted import ATTEMPTS, HostedFunction
from triggers.udf.known import function_named
from triggers.udf.options import UdfRefused
from triggers.udf.rows import chunks_of, fired_by
from triggers.udf.use import UdfFailed

__all__ = ["FOLLOWED_ROWS", "FunctionOutcome", "TriggerFunctions"]

#: Functions that run concurrently; a hanging one delays the next rows of all, but not the work of the others.
_AT_ONCE = 32
#: The size limit of a function's state and its outputs for the rows taken together, which are one value on the bus.
_MAX_STORED_BYTES = 64 << 20
#: Stored together, if they are smaller than this.
_PUT_BYTES = 1 << 20
#: The most bytes of rows that wait; then the slowest function is stopped.
_MAX_WAITING_BYTES = 256 << 20
#: How long (s) an ended trigger is remembered: a task that lags may still send rows of it.
_ENDED_SECONDS = 3_600.0
_ENDED = "it has ended"
_MOST_RECORDS = 1_000
#: The most triggers with a function, since clients can register them and each is a process on the operator's machine.
MAX_RUNNING = 200
_HEAD = struct.Struct("<I")
log = get_logger()

_COUNTS = metrics.Counter(
    "candlewright_spark_trigger_functions_total",
    "Of functions that triggers name: points, outputs, uses begun, restarts, failures, states refused or unreadable, "
    "lines of their log and those dropped of it, unsolicited answers, triggers suspended.",
    ["function", "what"],
    registry=metrics.REGISTRY,
)
_RUNNING = metrics.Gauge(
    "candlewright_spark_trigger_functions_running", "Functions that triggers have.", registry=metrics.REGISTRY
)


#: Records are taken as soon as they come, since no file is written.
FOLLOWED_ROWS = Followed(
    topic=bus_topics.FUNCTION_ROWS,
    reader=bus_topics.READER_TRIGGER_FUNCTIONS,
    state="trigger_functions",
    max_records=_MOST_RECORDS,
    many_records=1,
    digest=lambda records: [FunctionRows.FromString(record.value) for record in records],
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stored:
    """The stored state after round `batch`. `runs`: how often the function has run; `reason`: why the trigger no longer
    runs.
    """

    query_id: str = ""
    version: int = 0
    batch: int = -1
    runs: int = 0
    reason: str = ""
    state: bytes = b""
    fired: tuple[Fired, ...] = ()

    def to_bytes(self) -> bytes:
        told = [[event.ticker, len(event.value)] for event in self.fired]
        head = json.dumps(
            [self.query_id, self.version, self.batch, self.runs, self.reason, len(self.state), told]
        ).encode()
        return b"".join([_HEAD.pack(len(head)), head, self.state, *(event.value for event in self.fired)])

    @classmethod
    def of(cls, trigger_id: str, content: bytes) -> "_Stored":
        at = _HEAD.size + _HEAD.unpack_from(content)[0]
        query_id, version, batch, runs, reason, size, told = json.loads(content[_HEAD.size : at])
        state = content[at : at + size]
        at += size
        fired = []
        for ticker, length in told:
            fired.append(Fired(trigger_id, ticker, content[at : at + length]))
            at += length
        return cls(
            query_id=query_id, version=version, batch=batch, runs=runs, reason=reason, state=state, fired=tuple(fired)
        )


@dataclass(frozen=True, slots=True)
class _Ran:
    """The result of a function. `after`: what to store; `seconds`: how long it took."""

    after: _Stored
    counts: Mapping[str, int]
    seconds: float


#: A trigger, its rows, and the state before them.
_Due = tuple[str, Sequence[FunctionRows], _Stored]
#: Names events and suspensions on the bus.
_WRITER = "functions"


@dataclass(slots=True)
class FunctionOutcome:
    fired: list[Fired] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)


class TriggerFunctions:
    """One per driver; `store` is what a `Follower` of `FOLLOWED_ROWS` calls.

    `on_outcome`: called with each outcome and the total counts for the status page. `most_waiting`: records that may
    wait for slow functions. `attempts`: the most attempts at the rows of one function; `most`: the most triggers with a
    function.
    """

    def __init__(
        self,
        bus: Bus,
        functions: Mapping[str, KapacitorFunctionSettings],
        *,
        most_waiting: int,
        on_outcome: Callable[[FunctionOutcome, Mapping[str, int]], object],
        attempts: int = ATTEMPTS,
        most: int = MAX_RUNNING,
    ) -> None:
        self._bus = bus
        self._functions = functions
        self._most_waiting = most_waiting
        self._on_outcome = on_outcome
        self._attempts = attempts
        self._most = most
        #: By trigger; all that the bus has, once it was read.
        self._stored: dict[str, _Stored] | None = None
        #: When triggers ended (monotonic s), oldest first.
        self._ended: dict[str, float] = {}
        #: The end of the rows that waited when a function was stopped.
        self._worked_off_at = 0
        self._hosted: dict[str, HostedFunction] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self._working = threading.Lock()
        self.totals: dict[str, int] = defaultdict(int)

    def store(self, taken: Taken) -> None:
        """Run all functions over the rows taken, and publish their events and suspensions; may be repeated. Raises
        BusUnavailable.
        """
        with self._working:
            self._forget_ended()
            for place, rows in enumerate(list(_rounds(taken.records))):
                number = taken.number * _MOST_RECORDS + place
                waiting = "" if place else self._waiting_after(taken)
                outcome = self._carry_out(number, f"{taken.name}/{place}", rows, waiting=waiting)
                self._on_outcome(outcome, self.totals)

    def close(self) -> None:
        """End all functions in an orderly way, unless one still works; they continue from the stored state."""
        if self._working.acquire(blocking=False):
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(self._close, list(self._hosted)))

    def _waiting_after(self, taken: Taken) -> str:
        """Why rows must not wait any longer; empty if they may. Once a function was stopped, the others get the time to
        work off what waited.
        """
        (state,) = self._bus.state(bus_topics.FUNCTION_ROWS)
        records, reason = state.end - taken.end[0], ""
        if records > self._most_waiting:
            reason = f"more than triggers.max_waiting_rows = {self._most_waiting:,} records wait for it"
        elif records and state.size_bytes > _MAX_WAITING_BYTES:
            reason = f"{state.size_bytes:,} bytes wait for it"
        if not reason or taken.end[0] < self._worked_off_at:
            return ""
        self._worked_off_at = state.end
        return reason

    def _carry_out(self, number: int, name: str, rows: Sequence[FunctionRows], *, waiting: str) -> FunctionOutcome:
        """Round `number`, which may be a repetition. `name`: of its outputs; `waiting`: why the slowest function must
        stop, if it must.
        """
        stored = self._states()
        fed: dict[str, list[FunctionRows]] = defaultdict(list)
        for one in rows:
            if one.parameters:
                fed[one.trigger_id].append(one)
        due = [(trigger_id, own, before) for trigger_id, own in sorted(fed.items())
               if (before := self._before(own[-1], number)) is not None]  # fmt: skip
        found = self._run_all(number, name, due)
        if waiting and found:
            place = max(range(len(found)), key=lambda place: found[place].seconds)
            before = due[place][2]
            reason = f"the function {due[place][1][-1].parameters['udf']} is too slow: {waiting}"
            after = replace(before, batch=number, reason=reason, state=b"", fired=())
            found[place] = replace(found[place], after=after, counts={"suspended": 1})
        puts: dict[str, bytes] = {}
        for (trigger_id, _, _), ran in zip(due, found, strict=True):
            puts[trigger_id] = ran.after.to_bytes()
            if sum(map(len, puts.values())) > _PUT_BYTES:
                self._bus.put(bus_topics.TABLE_FUNCTION_STATES, puts)
                puts = {}
        if puts:
            self._bus.put(bus_topics.TABLE_FUNCTION_STATES, puts)
        for (trigger_id, own, _), ran in zip(due, found, strict=True):
            stored[trigger_id] = ran.after
            self._count(trigger_id, own[-1].parameters["udf"], ran.counts)
            if ran.after.reason:
                self._close(trigger_id)
        outcome = FunctionOutcome()
        for trigger_id in sorted(fed):
            after = stored[trigger_id]
            if after.batch == number:
                outcome.fired += after.fired
                if after.reason:
                    outcome.reports.append(TriggerReport(trigger_id, after.version, "suspended", after.reason))
        self._publish(number, outcome)
        for trigger_id in {event.trigger_id for event in outcome.fired}:
            stored[trigger_id] = replace(stored[trigger_id], fired=())
        for one in rows:
            if not one.parameters:
                self._end(one, number)
        return outcome

    def _publish(self, number: int, outcome: FunctionOutcome) -> None:
        writes = Direct(self._bus)
        publish_events(writes, _WRITER, number, events=outcome.fired)
        if outcome.reports:
            # A number that no partition and not the joint one has.
            owner = self._bus.partitions(bus_topics.TICKS) + 1
            publish_progress(writes, _WRITER, number, owner=owner, controls_end=0, reports=outcome.reports)

    def _end(self, ended: FunctionRows, number: int) -> None:
        """End the trigger's function. Rows of it that come later are dropped."""
        stored = self._states()
        known = stored.get(ended.trigger_id, _Stored())
        if known.version <= ended.version and known.reason != _ENDED:
            self._close(ended.trigger_id)
            after = _Stored(query_id=ended.query_id, version=ended.version, batch=number, reason=_ENDED)
            self._bus.put(bus_topics.TABLE_FUNCTION_STATES, {ended.trigger_id: after.to_bytes()})
            stored[ended.trigger_id] = after
            self._ended.pop(ended.trigger_id, None)
            self._ended[ended.trigger_id] = time.monotonic()

    def _forget_ended(self) -> None:
        stored = self._states()
        due = time.monotonic() - _ENDED_SECONDS
        for trigger_id in list(takewhile(lambda ended: self._ended[ended] <= due, self._ended)):
            if stored[trigger_id].reason == _ENDED:
                self._bus.delete(bus_topics.TABLE_FUNCTION_STATES, [trigger_id])
                del stored[trigger_id]
            del self._ended[trigger_id]

    def _states(self) -> dict[str, _Stored]:
        if self._stored is None:
            found = self._bus.items(bus_topics.TABLE_FUNCTION_STATES)
            self._stored = {trigger_id: self._read(trigger_id, content) for trigger_id, content in found.items()}
            now = time.monotonic()
            self._ended = {name: now for name, known in self._stored.items() if known.reason == _ENDED}
        return self._stored

    def _read(self, trigger_id: str, content: bytes) -> _Stored:
        """The stored state; if it is unreadable, only its own trigger loses the function's memory."""
        try:
            return _Stored.of(trigger_id, content)
        except (ValueError, TypeError, struct.error) as error:
            log.error("function_state_unreadable", trigger_id=trigger_id, error=repr(error))
            _COUNTS.labels("", "states_unreadable").inc()
            self.totals["states_unreadable"] += 1
            return _Stored()

    def _before(self, newest: FunctionRows, number: int) -> _Stored | None:
        """The state from which the trigger continues; None if it has nothing to do, because the round is done or the
        trigger no longer runs.
        """
        stored = self._states().get(newest.trigger_id, _Stored())
        if stored.query_id != newest.query_id or stored.version < newest.version:
            self._close(newest.trigger_id)
            return _Stored(query_id=newest.query_id, version=newest.version)
        is_done = stored.version > newest.version or stored.batch >= number
        return None if is_done or stored.reason else stored

    def _run_all(self, number: int, name: str, due: Sequence[_Due]) -> list[_Ran]:
        if len(due) < 2:
            return [self._run(number, name, *work) for work in due]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="trigger-function") as threads:
            return list(threads.map(lambda work: self._run(number, name, *work), due))

    def _run(self, number: int, name: str, trigger_id: str, inputs: Sequence[FunctionRows], before: _Stored) -> _Ran:
        """Run one function. May be called in a thread."""
        runs, state, parameters = before.runs, before.state, inputs[-1].parameters
        fired: list[Fired] = []
        counts = {"points": 0, "outputs": 0}
        began = time.monotonic()
        try:
            hosted = self._hosted_for(trigger_id, parameters)
            for requests in chunks_of(inputs, hosted.wants()):
                runs += 1
                outcome = hosted.run(runs, requests, state)
                state = outcome.state
                fired += fired_by(outcome.outputs, trigger_id, before.version, batch=f"{name}, {runs - before.runs}")
                size = len(state) + sum(len(event.value) for event in fired)
                if size > _MAX_STORED_BYTES:
                    raise UdfFailed(f"its state and outputs for the rows taken together have {size} bytes")
                counts["points"] += len(requests)
                counts["outputs"] += len(outcome.outputs)
        except Exception as error:  # No error caused by one trigger's function may stop the others.
            if not isinstance(error, UdfFailed | UdfRefused):
                log.exception("trigger_function_failed", trigger_id=trigger_id)
            reason = f"the function {parameters['udf']}: {str(error) or type(error).__name__}"
            after = replace(before, batch=number, runs=runs, reason=reason, state=b"", fired=())
            return _Ran(after, {"suspended": 1}, time.monotonic() - began)
        after = replace(before, batch=number, runs=runs, state=state, fired=tuple(fired))
        return _Ran(after, counts, time.monotonic() - began)

    def _hosted_for(self, trigger_id: str, parameters: Mapping[str, str]) -> HostedFunction:
        hosted = self._hosted.get(trigger_id)
        if hosted is None:
            asked = FunctionAsked.of(parameters)
            assert asked is not None
            settings = function_named(self._functions, asked.name)
            if len(self._hosted) >= self._most:
                raise UdfRefused(f"{len(self._hosted)} triggers have a function already, and each takes a process")
            hosted = HostedFunction(
                name=asked.name,
                settings=settings,
                calls=asked.calls,
                task_id=trigger_id,
                node_id="trigger",
                attempts=self._attempts,
            )
            self._hosted[trigger_id] = hosted
            _RUNNING.set(len(self._hosted))
        return hosted

    def _count(self, trigger_id: str, name: str, more: Mapping[str, int]) -> None:
        """`more`, and what the function itself has counted since the last time."""
        hosted = self._hosted.get(trigger_id)
        counted = {} if hosted is None else {key: getattr(hosted.counts, key) for key in hosted.counts.__slots__}
        known = self._counted.get(trigger_id, {})
        self._counted[trigger_id] = counted
        grown = {key: value - known.get(key, 0) for key, value in counted.items()}
        for what, count in (grown | dict(more)).items():
            if count:
                _COUNTS.labels(name, what).inc(count)
                self.totals[what] += count

    def _close(self, trigger_id: str) -> None:
        hosted = self._hosted.pop(trigger_id, None)
        self._counted.pop(trigger_id, None)
        if hosted is not None:
            hosted.close()
            _RUNNING.set(len(self._hosted))


def _rounds(records: Iterable[StoredRecord]) -> Iterator[list[FunctionRows]]:
    """The rows of the records, in order, in groups in which a trigger has one version."""
    found: list[FunctionRows] = []
    ages: dict[str, tuple[str, int]] = {}
    for record in records:
        rows = FunctionRows.FromString(record.value)
        age = rows.query_id, rows.version
        if ages.setdefault(rows.trigger_id, age) != age:
            yield found
            found, ages = [], {rows.trigger_id: age}
        found.append(rows)
    if found:
        yield found
