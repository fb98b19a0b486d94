"""Keeps a function running: takes batches of rows, returns outputs and the state after them, and restarts it when it
fails.

The caller keeps the state with its own checkpoint and numbers its batches. A batch that fails is repeated by a new use
of the function, from the state before it, so that a batch has its outputs once or not at all. A batch that the caller
repeats, here or after a restart, is recognised by its number, and begins from the state that the caller kept.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from core.log import get_logger
from core.settings_gateways import KapacitorFunctionSettings
from protobuf.udf_superset_pb2 import EdgeType, InfoResponse, Option, Request
from triggers.udf.options import Call, UdfRefused, checked_options
from triggers.udf.use import Output, StateRefused, UdfFailed, Use, ask_info

__all__ = ["ATTEMPTS", "BatchOutcome", "HostCounts", "HostedFunction"]

log = get_logger()
ATTEMPTS = 5
#: How many lines of a function's log are passed on at once, and how many more each second. A verbose function must not
#: push the driver's own errors out of the log.
LOG_BURST, LOG_PER_SECOND = 200, 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class HostCounts:
    """`restarts`: uses begun after the first; `states_refused`: uses that had to begin without their state."""

    uses: int = 0
    restarts: int = 0
    failures: int = 0
    states_refused: int = 0
    log_lines: int = 0
    log_lines_dropped: int = 0
    unasked: int = 0


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """`state`: after the batch, for the next one; empty for a function without state."""

    outputs: Sequence[Output]
    state: bytes


@dataclass(kw_only=True, slots=True)
class HostedFunction:
    """The function `name` of the operator's settings, with the options of one trigger. Not thread-safe.

    `pause`: waits between attempts.
    """

    name: str
    settings: KapacitorFunctionSettings
    calls: Sequence[Call] = ()
    task_id: str = ""
    node_id: str = ""
    attempts: int = ATTEMPTS
    pause: Callable[[float], None] = field(default=tenacity.nap.sleep, repr=False)
    counts: HostCounts = field(default_factory=HostCounts)
    _info: InfoResponse | None = None
    _options: list[Option] = field(default_factory=list)
    _use: Use | None = None
    _at: int | None = None
    _log_room: float = LOG_BURST
    _logged_at: float = field(default_factory=time.monotonic)
    _log_is_cut: bool = False

    def check(self) -> InfoResponse:
        """The function's description of itself, with the options checked against it; requested once.

        Raises UdfRefused for options that it does not accept, UdfFailed if it does not answer.
        """
        if self._info is None:
            info = ask_info(self.settings, self._log)
            self._options = checked_options(info, self.calls)
            self._info = info
        return self._info

    def wants(self) -> EdgeType:
        """The edge type of the requests that `run` must be given. Raises the same errors as `run`."""
        return self._tried(lambda: self.check().wants)

    def run(self, number: int, requests: Sequence[Request], before: bytes) -> BatchOutcome:
        """Run batch `number`. `requests`: its points, or begins, points and ends, in order; `before`: the state after
        the previous batch, empty for the first.

        Raises UdfRefused for options that the function does not accept, and UdfFailed if the last attempt failed or the
        function hung; the batch may be run again.
        """
        return self._tried(lambda: self._run(number, requests, before), number)

    def close(self) -> None:
        """End the function politely. Its last output belongs to no batch and is dropped. The next `run` starts it
        afresh.
        """
        use, self._use, self._at = self._use, None, None
        if use is not None:
            use.stop()
            self.counts.unasked += use.unasked

    def _tried(self, work: Callable[[], T], number: int | None = None) -> T:
        """Do `work`, and retry it after UdfFailed for as long as a function may be silent."""
        for attempt in tenacity.Retrying(
            # All triggers wait meanwhile. A function that hung has used up its time with the first attempt.
            stop=tenacity.stop_after_attempt(self.attempts) | tenacity.stop_after_delay(self.settings.timeout_seconds),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            retry=tenacity.retry_if_exception_type(UdfFailed),
            sleep=self.pause,
            reraise=True,
        ):
            with attempt:
                try:
                    return work()
                except UdfFailed as error:
                    self.counts.failures += 1
                    log.warning("udf_failed", udf=self.name, task=self.task_id, batch=number, reason=str(error))
                    self._drop()
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _run(self, number: int, requests: Sequence[Request], before: bytes) -> BatchOutcome:
        use = self._use_at(number - 1, before)
        self._at = None
        use.send(requests)
        use.ask("snapshot", Request())
        use.settle()
        outcome = BatchOutcome(use.take_outputs(), use.newest_state)
        self._at = number
        return outcome

    def _use_at(self, number: int, state: bytes) -> Use:
        """A use in the state after batch `number`."""
        if self._use is not None and self._at == number and not self._use.failure:
            return self._use
        if self.counts.uses:
            self.counts.restarts += 1
        self._drop()
        provides = self.check().provides
        self._use = self._begun(provides)
        if state:
            try:
                self._use.restore(state)
            except StateRefused as error:
                # For example after a change of its code. It would refuse the state every time, and the trigger would
                # never run again.
                self.counts.states_refused += 1
                log.warning("udf_state_refused", udf=self.name, task=self.task_id, reason=str(error))
                self._drop()
                self._use = self._begun(provides)
        return self._use

    def _begun(self, provides: EdgeType) -> Use:
        use = Use(self.settings, provides, self._log)
        self.counts.uses += 1
        try:
            use.init(self._options, self.task_id, self.node_id)
        except (UdfFailed, UdfRefused):
            use.kill()
            raise
        return use

    def _drop(self) -> None:
        use, self._use, self._at = self._use, None, None
        if use is not None:
            use.kill()
            self.counts.unasked += use.unasked

    def _log(self, line: str) -> None:
        self.counts.log_lines += 1
        now = time.monotonic()
        self._log_room = min(LOG_BURST, self._log_room + (now - self._logged_at) * LOG_PER_SECOND)
        self._logged_at = now
        if self._log_room < 1:
            if not self._log_is_cut:
                log.warning("udf_log_cut", udf=self.name, task=self.task_id, lines_per_second=LOG_PER_SECOND)
            self._log_is_cut = True
            self.counts.log_lines_dropped += 1
            return
        self._log_is_cut = False
        self._log_room -= 1
        log.info("udf_log", udf=self.name, task=self.task_id, line=line)
