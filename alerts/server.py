"""The loop: reads the bus, asks the state, sends, and stores what must survive."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from alerts.alert import Alert, Delivery
from alerts.commands import Command, Finish, Save, Send
from alerts.events import AlertsRead, Event, Finished, Restored, Saved, SendFailed, Sent, SilencesFound, TimePassed
from alerts.feed import Feed
from alerts.pages import Pages
from alerts.senders.sender import DeliveryFailed, Sender
from alerts.senders.senders import sender_of
from alerts.state import AlertsState
from alerts.store import AlertStore
from alerts.watch import Watch
from bus.api import Bus, Swap
from candlewright.wire.errors import BusError, RoleLost
from core import metrics
from core.background import awaited_task, start_task
from core.http import Status
from core.log import get_logger
from core.settings_alerts import KINDS, AlertsSettings

__all__ = ["Alerts", "senders_of"]

log = get_logger()

_WAIT_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_WATCH_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_TRIM_SECONDS = 600.0
#: The most outcomes in one call to the bus.
_BATCH = 1_000
#: How long a stop waits for messages in flight.
_STOP_SECONDS = 5.0

_DELIVERED = metrics.Counter(
    "candlewright_alerts_deliveries_total",
    "Finished deliveries, by destination and status.",
    ["destination", "status"],
    registry=metrics.REGISTRY,
)
_FAILED = metrics.Counter(
    "candlewright_alerts_failed_tries_total",
    "Failed attempts, by destination and kind of failure.",
    ["destination", "failure"],
    registry=metrics.REGISTRY,
)
_RECOVERED = metrics.Counter(
    "candlewright_alerts_recoveries_total",
    "How often a destination accepted alerts again after a failed attempt.",
    ["destination"],
    registry=metrics.REGISTRY,
)
_SECONDS = metrics.Histogram(
    "candlewright_alerts_delivery_seconds",
    "Time from taking an alert to its destination's answer.",
    ["destination"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 60, 600, 86_400),
    registry=metrics.REGISTRY,
)

Result = TypeVar("Result")


def senders_of(settings: AlertsSettings) -> dict[str, Sender]:
    """The sender of each destination. Raises ConfigurationError."""
    return {name: sender_of(name, own) for name, own in settings.destinations.items()}


class Alerts:
    """Runs until `stop` is set. Deliveries that a stop or a kill leaves undone continue with the next start."""

    def __init__(self, settings: AlertsSettings, bus: Bus, senders: dict[str, Sender], *, data_dir: Path) -> None:
        self._settings = settings
        self._state = AlertsState(settings)
        self._watch = Watch()
        self._pages = Pages(data_dir)
        self._store = AlertStore(bus)
        self._feed = Feed(bus, _kinds(settings))
        self._senders = senders
        # One thread for the reader, which waits on the bus, and one for the writer, which keeps the order of its calls.
        self._reading = ThreadPoolExecutor(1, "alerts-reader")
        self._writing = ThreadPoolExecutor(1, "alerts-writer")
        self._unwritten: list[Finish] = []
        self._has_unwritten = asyncio.Event()
        self._writes = asyncio.Lock()
        self._is_due = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self._is_ready = False
        self._is_stopping = False
        self._problem = ""

    async def serve(self, stop: asyncio.Event) -> None:
        await self._until_done(self._reading, self._open)
        restored = await self._until_done(self._writing, self._store.waiting)
        opened = await self._until_done(self._writing, self._store.opened)
        self._carry_out(Restored(restored, time.time(), opened))
        self._is_ready = True
        tasks = [
            start_task(self._read, "alerts-reader"),
            start_task(self._write, "alerts-writer"),
            start_task(self._keep_time, "alerts-clock"),
            start_task(self._look, "alerts-requests"),
            start_task(self._watch_parts, "alerts-watch"),
        ]
        try:
            await stop.wait()
        finally:
            self._is_ready, self._is_stopping = False, True
            for task in (tasks[0], *tasks[2:]):
                task.cancel()
            if self._sending:
                await asyncio.wait(self._sending, timeout=_STOP_SECONDS)
            await self._write_rest()
            tasks[1].cancel()
            for sender in self._senders.values():
                await sender.close()
            await self._pages.close()
            self._reading.shutdown(wait=False)
            self._writing.shutdown(wait=False)

    def status(self) -> Status:
        """For the status page; may be called from any thread."""
        destinations = self._state.status()
        warnings = [
            f"{name} does not accept alerts ({each['waiting']} waiting): {each['last_error']}"
            for name, each in destinations.items()
            if each["last_error"]
        ]
        if self._feed.unread:
            warnings.append(f"{self._feed.unread} records were dropped by the bus before they were read")
        problems = (self._problem,) if self._problem else ()
        return Status(
            part="alerts",
            is_ready=self._is_ready,
            problems=problems,
            details={"destinations": destinations},
            warnings=tuple(warnings),
        )

    def _open(self) -> None:
        self._store.open()
        self._feed.open()

    # ---- tasks
    async def _read(self) -> None:
        while True:
            if not await self._until_done(self._reading, lambda: self._feed.wait(_WAIT_SECONDS)):
                continue
            alerts = await self._until_done(self._reading, self._feed.read)
            new = await self._keep(alerts, self._feed.moved())
            self._carry_out(Saved(new, time.time()))

    async def _keep(self, alerts: Sequence[Alert], read: Swap | None = None) -> Sequence[Delivery]:
        """Take alerts into the state; returns once their deliveries are durable."""
        found = self._state.handle(AlertsRead(alerts, time.time()))
        save = next((each for each in found if isinstance(each, Save)), Save([]))
        await self._until_done(self._reading, partial(self._save, save, read))
        return save.deliveries

    def _save(self, save: Save, read: Swap | None) -> None:
        if save.opened:
            self._store.keep_opened(save.opened)
        if save.over:
            self._store.end_silences([each.silence_id for each in save.over])
        self._store.keep(save.deliveries, read)

    async def _watch_parts(self) -> None:
        """Watches for problems that the platform cannot report on the bus itself."""
        beaten_at = 0.0
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            alerts = self._watch.look(await self._pages.look())
            if alerts:
                self._carry_out(Saved(await self._keep(alerts), time.time()))
            heartbeat = self._settings.heartbeat.get_secret_value()
            if heartbeat and self._watch.is_well and time.monotonic() - beaten_at >= self._settings.heartbeat_seconds:
                beaten_at = time.monotonic()
                await self._pages.beat(heartbeat)

    async def _write(self) -> None:
        while True:
            await self._has_unwritten.wait()
            await self._write_rest()

    async def _write_rest(self) -> None:
        # A stop waits for everything that the writer has taken and not yet written.
        async with self._writes:
            while self._unwritten:
                taken, self._unwritten = self._unwritten[:_BATCH], self._unwritten[_BATCH:]
                await self._until_done(self._writing, lambda taken=taken: self._write_now(taken))  # type: ignore[misc]
                ended = [each.destination for each in taken if each.destination]
                self._carry_out(Finished(ended, time.time()))
            self._has_unwritten.clear()

    def _write_now(self, commands: Sequence[Finish]) -> None:
        """A change is not written if a later outcome makes it obsolete; both are in time order."""
        outcomes = [outcome for each in commands for outcome in each.outcomes]
        over = {outcome.delivery.key for outcome in outcomes}
        changed = {each.key: each for command in commands for each in command.changed if each.key not in over}
        if changed:
            self._store.keep([*changed.values()])
        if outcomes:
            self._store.finish(outcomes)

    async def _keep_time(self) -> None:
        trimmed_at = time.monotonic()
        while True:
            now = time.time()
            due = self._state.due(now)
            self._is_due.clear()
            try:
                async with asyncio.timeout(None if due is None else max(0.001, due - now)):
                    await self._is_due.wait()
            except TimeoutError:
                self._carry_out(TimePassed(time.time()))
            if time.monotonic() - trimmed_at > _TRIM_SECONDS:
                trimmed_at = time.monotonic()
                await self._until_done(self._writing, self._store.trim)

    async def _look(self) -> None:
        """Checks for operators' requests. Deletes the rows of finished deliveries first, because an operator may send
        one again.
        """
        while True:
            await self._until_done(self._writing, self._store.forget)
            silences = await self._until_done(self._writing, self._store.silences)
            self._carry_out(SilencesFound(silences))
            anew = await self._until_done(self._writing, lambda: self._store.asked_again(time.time()))
            if anew:
                self._carry_out(Restored(anew, time.time()))
            await asyncio.sleep(_LOOK_SECONDS)

    # ---- commands
    def _carry_out(self, event: Event) -> None:
        for command in self._state.handle(event):
            self._do(command)
        self._is_due.set()

    def _do(self, command: Command) -> None:
        match command:
            case Send() if self._is_stopping:
                # The row stays on the bus for the next process.
                pass
            case Send(destination, deliveries):
                task = awaited_task(self._send(destination, deliveries))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            case Finish():
                for outcome in command.outcomes:
                    _DELIVERED.labels(outcome.delivery.destination, outcome.status.value).inc()
                self._unwritten.append(command)
                self._has_unwritten.set()
            case Save():
                raise AssertionError("alerts are saved by the reader")

    async def _send(self, destination: str, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._senders[destination].send(deliveries)
        except DeliveryFailed as error:
            _FAILED.labels(destination, error.failure.value).inc()
            log.warning("delivery_failed", destination=destination, alert=deliveries[0].alert_id, error=str(error))
            failure = error.failure.value
            self._carry_out(SendFailed(destination, deliveries, str(error), time.time(), failure, error.retry_after))
            return
        now = time.time()
        for delivery in deliveries:
            _SECONDS.labels(destination).observe(max(0.0, now - delivery.taken_at))
        if self._state.is_failing(destination):
            _RECOVERED.labels(destination).inc()
        self._carry_out(Sent(destination, deliveries, now))

    async def _until_done(self, pool: ThreadPoolExecutor, call: Callable[[], Result]) -> Result:
        """Retries until it succeeds: nothing is lost while the bus is down, because everything waits for it."""
        while True:
            try:
                found = await asyncio.get_running_loop().run_in_executor(pool, call)
            except RoleLost:
                # Another process delivers now; the role's keeper ends this one.
                raise
            except BusError as error:
                self._problem = f"the bus does not accept the state of the alerts: {error}"
                log.warning("alerts_bus_retried", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._problem = ""
                return found


def _kinds(settings: AlertsSettings) -> Iterable[str]:
    """The kinds that any route uses, and always events, because a trigger may name its own destinations."""
    return {"event", *(kind for route in settings.route for kind in (route.kind or KINDS))}
