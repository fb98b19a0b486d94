"""Runs the external functions that triggers name, in the driver: from the rows of a micro-batch to events, each once.

They run here and not in the tasks, whose processes are shared and end when idle, because a function is one process for
as long as its trigger runs. The state after a micro-batch and its outputs are stored together before anything is
published, so a repeated batch publishes the same, or starts over if nothing was stored.
"""

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from bus import Bus, KeyedTables
from core import metrics
from core.log import get_logger
from core.settings_gateways import KapacitorFunctionSettings
from flink_replacement_spark.engine.writes import Direct
from flink_replacement_spark.triggers.rows import publish_events, publish_progress
from triggers.events.firings import Fired
from triggers.running.outcome import TriggerReport
from triggers.udf.asked import FunctionAsked
from triggers.udf.hosted import ATTEMPTS, HostedFunction
from triggers.udf.known import function_named
from triggers.udf.options import UdfRefused
from triggers.udf.rows import FunctionInput, chunks_of, fired_by
from triggers.udf.use import UdfFailed

__all__ = ["FUNCTION_STATE_PREFIX", "FunctionOutcome", "TriggerFunctions", "carry_out"]

FUNCTION_STATE_PREFIX = "trigger_function_state"
#: Functions that run concurrently; a hanging one delays the end of its batch, but not the work of the others.
_AT_ONCE = 32
#: The size limit of state and outputs of one micro-batch, which are one value on the bus.
_MAX_STORED_BYTES = 64 << 20
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


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored state after micro-batch `batch`. `runs`: how often the function has run; `reason`: why the trigger is
    suspended.
    """

    version: int
    batch: int = -1
    runs: int = 0
    reason: str = ""
    state: bytes = b""
    fired: tuple[Fired, ...] = ()

    def to_bytes(self) -> bytes:
        told = [[event.ticker, len(event.value)] for event in self.fired]
        head = json.dumps([self.version, self.batch, self.runs, self.reason, len(self.state), told]).encode()
        return b"".join([_HEAD.pack(len(head)), head, self.state, *(event.value for event in self.fired)])

    @classmethod
    def of(cls, trigger_id: str, content: bytes) -> "_Stored":
        at = _HEAD.size + _HEAD.unpack_from(content)[0]
        version, batch, runs, reason, size, told = json.loads(content[_HEAD.size : at])
        state = content[at : at + size]
        at += size
        fired = []
        for ticker, length in told:
            fired.append(Fired(trigger_id, ticker, content[at : at + length]))
            at += length
        return cls(version, batch, runs, reason, state, tuple(fired))


@dataclass(slots=True)
class FunctionOutcome:
    """`ended`: triggers that no longer exist."""

    fired: list[Fired] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)
    ended: list[FunctionInput] = field(default_factory=list)


class TriggerFunctions:
    """One per driver, for the thread that carries out micro-batches. `attempts`: the most attempts at one batch of one
    function; `most`: the most triggers with a function; `totals`: counts for the status page.
    """

    def __init__(
        self, functions: Mapping[str, KapacitorFunctionSettings], attempts: int = ATTEMPTS, most: int = MAX_RUNNING
    ) -> None:
        self._functions = functions
        self._attempts = attempts
        self._most = most
        self._query_id = ""
        self._stored: dict[str, _Stored] = {}
        self._hosted: dict[str, HostedFunction] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self.totals: dict[str, int] = defaultdict(int)

    def run(self, bus: Bus, query_id: str, batch_id: int, *, inputs: Iterable[FunctionInput]) -> FunctionOutcome:
        """Run all functions over their rows of one micro-batch, which may be a repetition; on return, the results are
        stored. Raises BusUnavailable.
        """
        self._begin(query_id)
        outcome = FunctionOutcome()
        fed: dict[str, list[FunctionInput]] = defaultdict(list)
        for one in inputs:
            if one.is_end:
                outcome.ended.append(one)
            else:
                fed[one.trigger_id].append(one)
        self._load(bus, fed)
        due = [(trigger_id, own, before) for trigger_id, own in sorted(fed.items())
               if (before := self._before(trigger_id, own[-1].version, batch_id)) is not None]  # fmt: skip
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="trigger-function") as threads:
            found = list(threads.map(lambda work: self._run(batch_id, *work), due))
        for (trigger_id, own, _), (after, counts) in zip(due, found, strict=True):
            bus.put(self._table, {trigger_id: after.to_bytes()})
            self._stored[trigger_id] = after
            self._count(trigger_id, own[-1].parameters["udf"], counts)
            if after.reason:
                self._close(trigger_id)
        for trigger_id in sorted(fed):
            after = self._stored[trigger_id]
            if after.batch == batch_id:
                outcome.fired += after.fired
                if after.reason:
                    outcome.reports.append(TriggerReport(trigger_id, after.version, "suspended", after.reason))
        return outcome

    def published(self, bus: Bus, outcome: FunctionOutcome) -> None:
        """Note that the results of `run` are on the bus; drops its events, and the state of triggers that were removed
        or have a newer version. Raises BusUnavailable.
        """
        for trigger_id in {event.trigger_id for event in outcome.fired}:
            self._stored[trigger_id] = replace(self._stored[trigger_id], fired=())
        for one in outcome.ended:
            self._load(bus, [one.trigger_id])
            if self._stored[one.trigger_id].version <= one.version:
                self._close(one.trigger_id)
                del self._stored[one.trigger_id]
                bus.delete(self._table, [one.trigger_id])

    def close(self) -> None:
        """End all functions in an orderly way; they continue from the stored state."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self._close, list(self._hosted)))
        self._stored.clear()

    @property
    def _table(self) -> str:
        return f"{FUNCTION_STATE_PREFIX}:{self._query_id}"

    def _begin(self, query_id: str) -> None:
        """Forget all state for a new query, whose checkpoint is new."""
        if query_id != self._query_id:
            self.close()
            self._query_id = query_id

    def _load(self, bus: KeyedTables, trigger_ids: Iterable[str]) -> None:
        wanted = [trigger_id for trigger_id in trigger_ids if trigger_id not in self._stored]
        if wanted:
            for trigger_id, content in zip(wanted, bus.get(self._table, wanted), strict=True):
                self._stored[trigger_id] = _Stored(0) if content is None else self._read(trigger_id, content)

    def _read(self, trigger_id: str, content: bytes) -> _Stored:
        """The stored state; if it is unreadable, only its own trigger loses the function's memory."""
        try:
            return _Stored.of(trigger_id, content)
        except (ValueError, TypeError, struct.error) as error:
            log.error("function_state_unreadable", trigger_id=trigger_id, error=repr(error))
            _COUNTS.labels("", "states_unreadable").inc()
            self.totals["states_unreadable"] += 1
            return _Stored(0)

    def _before(self, trigger_id: str, version: int, batch_id: int) -> _Stored | None:
        """The state from which the trigger continues; None if it has nothing to do, because the batch is done or the
        trigger is suspended.
        """
        stored = self._stored[trigger_id]
        if stored.version < version:
            self._close(trigger_id)
            return _Stored(version)
        return None if stored.version > version or stored.batch >= batch_id or stored.reason else stored

    def _run(
        self, batch_id: int, trigger_id: str, inputs: Sequence[FunctionInput], before: _Stored
    ) -> tuple[_Stored, dict[str, int]]:
        """Run one function; returns the state to store and the counts. Called in a thread."""
        runs, state, parameters = before.runs, before.state, inputs[-1].parameters
        fired: list[Fired] = []
        counts = {"points": 0, "outputs": 0}
        try:
            hosted = self._hosted_for(trigger_id, parameters)
            for requests in chunks_of(inputs, hosted.wants()):
                runs += 1
                outcome = hosted.run(runs, requests, state)
                state = outcome.state
                fired += fired_by(
                    outcome.outputs,
                    trigger_id,
                    before.version,
                    batch=f"{self._query_id}/{batch_id}, {runs - before.runs}",
                )
                size = len(state) + sum(len(event.value) for event in fired)
                if size > _MAX_STORED_BYTES:
                    raise UdfFailed(f"its state and outputs of one micro-batch have {size} bytes")
                counts["points"] += len(requests)
                counts["outputs"] += len(outcome.outputs)
        except Exception as error:  # No error caused by one trigger's function may stop the others.
            if not isinstance(error, UdfFailed | UdfRefused):
                log.exception("trigger_function_failed", trigger_id=trigger_id)
            reason = f"the function {parameters['udf']}: {str(error) or type(error).__name__}"
            return _Stored(before.version, batch_id, runs, reason), {"suspended": 1}
        return _Stored(before.version, batch_id, runs, "", state, tuple(fired)), counts

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


def carry_out(
    bus: Bus, functions: TriggerFunctions, query_id: str, *, batch_id: int, results: pa.Table, owner: int
) -> FunctionOutcome:
    """Run functions over the rows from a micro-batch's tasks (`results`: rows of `trigger_rows.RESULT`), and publish
    their events and suspensions; may be repeated. `owner`: a number that no partition has.
    """
    rows = results.filter(pc.is_valid(results["content"])).to_pylist()
    if not rows:
        return FunctionOutcome()
    inputs = [FunctionInput.of(row["name"], row["value"], row["content"]) for row in rows]
    outcome = functions.run(bus, query_id, batch_id, inputs=inputs)
    writer = f"{query_id}:functions"
    writes = Direct(bus)
    publish_events(writes, writer, batch_id, events=outcome.fired)
    if outcome.reports:
        publish_progress(writes, writer, batch_id, owner=owner, controls_end=0, reports=outcome.reports)
    functions.published(bus, outcome)
    return outcome
