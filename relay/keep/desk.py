"""The thread that keeps candles fresh, in the relay that has the registry."""

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from bus.api import Bus
from bus.topics import KEEP_PREFIX
from candlewright.wire.errors import BusError, RoleLost
from core.log import get_logger
from core.settings_keep import KeepSettings
from relay import metrics
from relay.keep.rules import settings_rules
from relay.keep.state import MAX_SERIES, KeepState, Restored, RulesRead, TimePassed
from relay.keep.store import KeepStore

#: Without any rule, only the table of rules is checked, this often (s).
_IDLE_SECONDS = 5.0
_ROUND_SECONDS = 1.0
#: How often (s) rules and the markets of their venues are read.
_RULES_SECONDS = 5.0
_SHOW_SECONDS = 5.0
log = get_logger()


class KeepDesk:
    """`registry_seconds`: how long request ids are remembered."""

    def __init__(self, rules: Sequence[KeepSettings], timeout_ns: int, registry_seconds: float) -> None:
        self._rules = settings_rules(rules)
        self._timeout_ns = timeout_ns
        self._registry_seconds = registry_seconds
        self._state: KeepState | None = None
        self._rules_at = self._shown_at = float("-inf")
        self._problem = ""
        self.summary: list[dict[str, Any]] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the status page."""
        state, found = self._state, [self._problem] if self._problem else []
        if state is not None and state.left_out:
            found.append(f"{state.left_out} series of the keep rules are left out: {MAX_SERIES} are kept at most")
        return tuple(found)

    def run(self, bus: Bus, stop: threading.Event) -> None:
        """`bus`: the connection that carries the registry's term."""
        store = KeepStore(bus, self._timeout_ns, self._registry_seconds)
        pause = 0.0
        while not stop.wait(pause):
            try:
                pause = self._round(store)
                self._problem = ""
            except RoleLost:
                raise
            except BusError as error:
                # It is unknown how much of this round was written; the table shows it.
                self._state = None
                self._problem = f"candles are not kept fresh: {error}"
                metrics.BUS_FAILURES.labels("keep").inc()
                log.warning("keep_failed", error=str(error))
                pause = _IDLE_SECONDS

    def _round(self, store: KeepStore) -> float:
        now, at = time.monotonic(), time.time_ns()
        state = self._state
        if state is None:
            state = KeepState(lambda: f"{KEEP_PREFIX}{uuid.uuid4()}", self._timeout_ns)
            store.carry_out(state.handle(Restored(store.series(), at)))
            self._state, self._rules_at = state, float("-inf")
        if now - self._rules_at >= _RULES_SECONDS:
            self._rules_at = now
            rules = self._rules + store.rules()
            if not rules and state.is_idle:
                self.summary = []
                return _IDLE_SECONDS
            venues = store.venues(venue for rule in rules for venue in rule.venues)
            store.carry_out(state.handle(RulesRead(rules, venues, at)))
        for ended in store.ends(state.open_requests, at) if state.open_requests else ():
            store.carry_out(state.handle(ended))
        store.carry_out(state.handle(TimePassed(at)))
        if now - self._shown_at >= _SHOW_SECONDS:
            self._shown_at = now
            self.summary = state.summary(at)
            store.show(self.summary)
        return _ROUND_SECONDS
