"""The thread that checks the texts of triggers, so that a long text delays nothing else."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import WEEK_SECONDS
from candlewright_cep import TriggerRejected
from core.log import get_logger
from core.settings import TriggersSettings
from core.settings_gateways import KapacitorFunctionSettings
from relay import metrics
from relay.topics import Named, live_name, named_topic
from relay.triggers.asked import Ack
from relay.triggers.commands import Check, CheckView
from relay.triggers.events import Checked, Refused, RefusedView, Sound, SoundView, ViewChecked
from triggers.texts.check import TriggerRules, check_trigger, compile_trigger
from triggers.texts.views import check_view
from triggers.udf.known import KnownFunctions
from triggers.udf.options import UdfRefused
from triggers.udf.use import UdfFailed

_IDLE_SECONDS = 1.0
#: The period of a trigger on bars that names none.
_DEFAULT_BAR_SECONDS = 60
_FAILED = "The text of this trigger cannot be checked; the platform's log says why."
log = get_logger()


class TriggerChecks:
    """Clients take turns, so one that sends thousands of texts does not delay others. The submitter bounds the number
    of waiting texts.
    """

    def __init__(
        self,
        settings: TriggersSettings,
        on_checked: Callable[[Checked | ViewChecked], object],
        functions: Mapping[str, KapacitorFunctionSettings] | None = None,
        *,
        warnings: Callable[[Sequence[Named]], Sequence[str]] = lambda topics: (),
        destinations: frozenset[str] | None = None,
    ) -> None:
        """`functions`, `destinations`: those that triggers may name; `warnings`: about the topics that one reads."""
        self._settings = settings
        self._destinations = destinations
        self._functions = KnownFunctions(functions or {})
        self._rules = TriggerRules.of(settings, destinations=destinations)
        self._on_checked = on_checked
        self._warnings = warnings
        self._queues: dict[bytes, deque[Check | CheckView]] = {}
        self._changed = threading.Condition()
        self.seen_at = time.monotonic()

    def set_partitions(self, partitions: int) -> None:
        """Set the number of partitions of the topics `ticks` and `ohlc`; call before the first text."""
        self._rules = TriggerRules.of(self._settings, partitions, self._destinations)

    def submit(self, asked: Check | CheckView) -> None:
        with self._changed:
            self._queues.setdefault(asked.peer.identity, deque()).append(asked)
            self._changed.notify()

    def wake(self) -> None:
        """Have `run` check its stop event."""
        with self._changed:
            self._changed.notify()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.seen_at = time.monotonic()
            asked = self._take()
            if asked is not None:
                with metrics.TRIGGER_CHECK_SECONDS.time():
                    found = self._of_view(asked) if isinstance(asked, CheckView) else self._of_trigger(asked)
                self._on_checked(found)

    def _of_trigger(self, wanted: Check) -> Checked:
        request = wanted.asked.request
        outcome = check(request, self._rules, self._functions, views=wanted.views)
        if isinstance(outcome, Sound):
            outcome = self._with_warnings(outcome, request.tickers)
        return Checked(wanted.asked, outcome)

    def _of_view(self, wanted: CheckView) -> ViewChecked:
        return ViewChecked(wanted, check_change(wanted, self._rules, self._functions))

    def _with_warnings(self, sound: Sound, tickers: Sequence[str]) -> Sound:
        periods = (sound.bar_seconds, *sound.joined_seconds)
        read = (named_topic(live_name(ticker, period).encode()) for ticker in tickers for period in periods)
        warnings = self._warnings([named for named in read if named is not None])
        return replace(sound, warnings=(*sound.warnings, *warnings)) if warnings else sound

    def _take(self) -> Check | CheckView | None:
        with self._changed:
            if not self._queues:
                self._changed.wait(_IDLE_SECONDS)
            for client, queue in self._queues.items():
                asked = queue.popleft()
                # The client goes to the end of the line, or leaves it.
                del self._queues[client]
                if queue:
                    self._queues[client] = queue
                return asked
        return None


def check(
    request: ing.CEPTriggerRequest,
    rules: TriggerRules,
    functions: KnownFunctions,
    *,
    views: Mapping[str, str] | None = None,
) -> Sound | Refused:
    views = views or {}
    try:
        checked = check_trigger(request, rules, views=views)
        compiled = compile_trigger(request.sql_pattern, dict(request.parameters), rules, views=views)
        own = compiled.options.period_seconds or _DEFAULT_BAR_SECONDS if compiled.is_on_bars else 0
        periods = compiled.periods if compiled.labels else (own,)
        if (period := max(periods)) > WEEK_SECONDS:
            raise InvalidRequest(f"bars of {period} seconds are not made; a bar lasts from 1 second to one week")
        if checked.function is not None:
            functions.check(checked.function)
    except TriggerRejected as error:
        return Refused(Ack.INVALID_SQL, _placed(error))
    except (InvalidRequest, UdfRefused, UdfFailed) as error:
        return Refused(Ack.ERROR, _sentence(str(error)))
    except Exception:
        # An internal error of the language must not end the thread, which all clients share.
        log.exception("trigger_check_failed", trigger_id=request.trigger_id)
        metrics.FAILURES.labels("trigger_check").inc()
        return Refused(Ack.ERROR, _FAILED)
    read = {name: views[name] for name in compiled.query.compiled.views}
    return Sound(checked.warnings, checked.is_joint, periods[0], periods[1:], read, compiled.sources)


def check_change(wanted: CheckView, rules: TriggerRules, functions: KnownFunctions) -> SoundView | RefusedView:
    """Check a new or changed view, and every text that reads it."""
    name, views = wanted.asked.request.name, wanted.views
    try:
        found = {name: check_view(name, views)}
    except TriggerRejected as error:
        return RefusedView(cw.ViewAck.INVALID_SQL, _placed(error))
    except Exception:
        # As for triggers, an internal error must not end the thread.
        log.exception("view_check_failed", view=name)
        metrics.FAILURES.labels("trigger_check").inc()
        return RefusedView(cw.ViewAck.ERROR, _FAILED)
    for reader in wanted.readers:
        try:
            found[reader] = check_view(reader, views)
        except TriggerRejected as error:
            return RefusedView(cw.ViewAck.ERROR, f"The view {reader!r} reads it and would be refused: {_placed(error)}")
    triggers: dict[str, Sound] = {}
    for known in wanted.triggers:
        request = ing.CEPTriggerRequest(
            trigger_id=known.trigger_id, sql_pattern=known.sql, tickers=known.tickers, parameters=known.parameters
        )
        outcome = check(request, rules, functions, views=views)
        if isinstance(outcome, Refused):
            return RefusedView(
                cw.ViewAck.ERROR, f"The trigger {known.trigger_id!r} reads it and would be refused: {outcome.text}"
            )
        triggers[known.trigger_id] = outcome
    return SoundView(found[name].warnings, found, triggers)


def _placed(error: TriggerRejected) -> str:
    hint = f" ({error.hint})" if error.hint else ""
    return f"{error.line}:{error.column}: {error.message}{hint}"


def _sentence(text: str) -> str:
    """The name of a setting or parameter at the beginning stays as it is written."""
    begun = text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]
    return begun if begun.endswith((".", "?")) else begun + "."
