"""The loop of the relay: the requests socket, and the threads around it.

requests thread       ROUTER; the state; short bus calls
notifications thread  XPUB (relay.doors.notifier)
feed thread           reads `notifications` and `snapshots` (relay.finals.feed)
replays thread        reads kept finals for late subscribers (relay.finals.replays)
live thread           reads `ticks` and `ohlc` for those who subscribe (relay.live.feed)
live requests thread  starts and cancels the jobs behind live topics (relay.live.requests)
triggers thread       registers and removes triggers (relay.triggers.desk)
trigger checks thread checks their texts (relay.triggers.checks)
progress thread       waits for the pipeline to carry out changes of triggers (relay.triggers.desk)
forwarding thread     answers of the relay that has the registry (relay.triggers.forwarding), without it
registry door thread  what clients of other relays ask (relay.triggers.forwarding), with it
trigger events thread publishes what fired (relay.triggers.feed)
two task threads      TopicReplay and reads of the tables (relay.requests.long_answers)
keys thread           says which keys are accepted, with keys on (core.doors.doorkeeper)
"""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import zmq
from google.protobuf.message import Message

from bus.api import Bus
from bus.roles import Keeper, Term, say_lost
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams
from candlewright.wire.errors import BusError, BusFull, RoleLost
from candlewright.wire.frames import MAX_FRAME_BYTES
from core.background import start_thread
from core.doors import Doorkeeper, KeyFolder, KnownKeys
from core.http import Status
from core.log import get_logger
from core.settings import is_loopback
from relay import commands as do
from relay import events as ev
from relay import metrics
from relay.asked import Peer
from relay.door import event_of, frames_of, receive, receive_with_key
from relay.doors.gate import Gate
from relay.doors.inbox import Inbox
from relay.doors.interest import Interest
from relay.doors.notifier import Batch, Notifier
from relay.doors.outbox import Outbox, send_nowait
from relay.doors.pace import Pace
from relay.doors.shares import Holder
from relay.finals.feed import Feed
from relay.finals.index import FinalIndex
from relay.finals.replays import Replays
from relay.keep.desk import KeepDesk
from relay.live.feed import LiveFeed
from relay.live.requests import LiveRequests
from relay.requests.long_answers import LongAnswers
from relay.requests.pages import ReadRows
from relay.requests.stored import ReadStored
from relay.settings import RelayConfig
from relay.state import RelayState
from relay.store import FINAL_TYPE, RelayStore, StoredFinal
from relay.topics import wanted_finals
from relay.triggers.callbacks import Callbacks
from relay.triggers.desk import TriggerDesk
from relay.triggers.feed import TriggerFeed
from relay.triggers.forwarding import DistantPeer, Forwarding, RegistryDoor, asked_of
from relay.triggers.state import BUSY as BUSY_TRIGGERS
from relay.triggers.store import TriggerStore
from relay.venues.venue_book import ALL_VENUES

_POLL_MILLISECONDS = 1_000
_STALLED_POLL_MILLISECONDS = 10
_STUCK_MILLISECONDS = 60_000
_FAIL_FAST_SECONDS = 0.5
_FROZEN_SECONDS = 30.0
#: Requests that are written concurrently.
_WRITERS = 16
#: Topics on which suspensions are published.
_TOLD_PREFIXES = (streams.TRIGGERS.prefix.encode(), streams.RESPONSES.prefix.encode())
_UNKNOWN_KEY = "This client's key is not known any more."
_NAMED = "With keys on a client does not choose the routing id (identity) of its socket: leave it unset."
_BUSY = "The platform has more work than it can store; try again later."
log = get_logger()
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Registry:
    """The role that one of several relays holds. `bus_of` returns the bus to write with in a term."""

    keeper: Keeper
    bus_of: Callable[[Term], Bus]

    @property
    def name(self) -> str:
        """The name of this relay, which stays the same when its supervisor restarts it."""
        return self.keeper.seat or self.keeper.holder


class Relay:
    """`start` binds and returns; `close` stops all threads. `failed` is set if a thread dies.

    With keys on, the constructor raises ConfigurationError if the folder of keys cannot be read or written.
    """

    def __init__(
        self,
        config: RelayConfig,
        bus: Bus,
        read_rows: ReadRows,
        *,
        read_stored: ReadStored,
        registry: "Registry | None" = None,
    ) -> None:
        self._config = config
        self._bus = bus
        self._registry = registry
        self._has_registry = threading.Event()
        name = "" if registry is None else registry.name
        self._relay_store = RelayStore(bus, config, name)
        self._state = RelayState(config)
        folder = KeyFolder(config.keys_in) if config.keys_in is not None else None
        pair = folder.platform() if folder is not None else None
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._keys: KnownKeys | None = None
        self._doorkeeper: Doorkeeper | None = None
        gate: Gate | None = None
        if folder is not None and pair is not None:
            self._keys = KnownKeys(folder)
            self._doorkeeper = Doorkeeper(self._context, pair, self._keys, refused=metrics.REFUSED_KEYS)
            self._doorkeeper.guard(self._router)
            gate = Gate(self._keys, self._doorkeeper.guard, config.limits.max_topic_bytes)
        self._notifier = Notifier(self._context, config.limits, gate)
        self._outbox = Outbox(lambda frames: send_nowait(self._router, frames), config.limits.client_backlog)
        self._arrived: Inbox[StoredFinal] = Inbox(config.limits.max_waiting_reads * 2)
        index = FinalIndex(config.limits.max_indexed)
        self._feed = Feed(
            bus,
            self._relay_store,
            config,
            index=index,
            publish=self._notifier.publish,
            awaited=self._state.waiting,
            on_awaited=self._on_awaited,
        )
        self._interest = Interest()
        self._live_feed = LiveFeed(bus, self._relay_store, self._interest, publish=self._notifier.publish)
        self._live_requests = LiveRequests(
            self._relay_store, config, self._notifier.publish, is_registry=self._has_registry.is_set
        )
        self._replays = Replays(bus, self._relay_store, config, index=index, publish=self._notifier.publish)
        self._triggers = TriggerDesk(
            TriggerStore(bus, self._relay_store),
            self._relay_store,
            config,
            reply=self._answer,
            follow=self._live_requests.follow,
            have_passed=lambda ends: self._trigger_feed.have_passed(ends),
            publish=self._notify_everywhere,
        )
        self._keep = KeepDesk(config.keep, config.timeout_ns, config.registry_seconds)
        self._door = RegistryDoor(bus, name, self._triggers.ask)
        self._forwarding = Forwarding(bus, name, self._answer, publish=self._notifier.publish)
        self._callbacks = Callbacks(bus)
        self._trigger_feed = TriggerFeed(
            bus,
            self._relay_store,
            config.limits,
            callback_of=self._callback_of,
            publish=self._notifier.publish,
            is_registry=self._has_registry.is_set,
        )
        self._long_answers = LongAnswers(
            bus, read_rows, read_stored, outbox=self._outbox, limits=config.limits, fail=self._fail, reply=self._reply
        )
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="relay-writer")
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pace = Pace()
        self._rest_seconds = 0.0
        self._bus_down_until = 0.0
        self._seen_at = time.monotonic()
        self.failed = threading.Event()
        self.requests_address = ""
        self.notifications_address = ""

    # ---- start and stop

    def start(self) -> None:
        """Bind both sockets; raises ZMQError if an address is taken.

        Subscriptions are taken only after the kept finals are indexed, so that none of them misses a replay.
        """
        limits = self._config.limits
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            # With keys on, no connection may take over another one's answers.
            (zmq.ROUTER_HANDOVER, int(self._keys is None)),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.SNDHWM, limits.client_queue),
            (zmq.LINGER, 500),
            (zmq.HEARTBEAT_IVL, 5_000),
            (zmq.HEARTBEAT_TIMEOUT, 15_000),
            # A client that reads nothing for this long loses its connection, and the answers that the socket holds for
            # it.
            (zmq.TCP_MAXRT, _STUCK_MILLISECONDS),
        ):
            self._router.setsockopt(option, value)
        self._router.bind(self._config.requests_bind)
        self.requests_address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.notifications_address = self._notifier.bind(self._config.notifications_bind)
        if self._doorkeeper is not None:
            self._run_thread("relay-keys", functools.partial(self._doorkeeper.run, self._stop))
        for name, run in (
            ("relay-requests", self._serve),
            ("relay-notifications", self._notify),
            ("relay-feed", lambda: self._feed.run(self._stop)),
            ("relay-replays", lambda: self._replays.run(self._stop)),
            ("relay-live", lambda: self._live_feed.run(self._stop)),
            ("relay-live-requests", self._keep_live_requests),
            ("relay-triggers", self._keep_registry),
            ("relay-trigger-checks", lambda: self._triggers.checks.run(self._stop)),
            *((("relay-forwarding", lambda: self._forwarding.run(self._stop)),) if self._registry else ()),
            ("relay-trigger-events", self._publish_trigger_events),
        ):
            self._run_thread(name, run)
        if self._keys is None:
            for address in (self.requests_address, self.notifications_address):
                if not is_loopback(address):
                    log.warning(
                        "open_without_keys", address=address, remedy="set security.curve, see docs/operations.md"
                    )
        log.info("relay_started", requests=self.requests_address, notifications=self.notifications_address)

    def close(self, grace_seconds: float = 2.0) -> None:
        """Stop all threads. The bus connections of threads that still wait are closed after the grace time."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._outbox.abandon()
        self._notifier.wake()
        self._replays.wake()
        self._live_feed.wake()
        self._live_requests.wake()
        self._triggers.wake()
        until = time.monotonic() + grace_seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._bus.close()
        for thread in self._threads:
            thread.join()
        self._long_answers.close()
        self._writers.shutdown()
        self._triggers.close()
        self._router.close()
        self._notifier.close()
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        self._context.term()
        self._outbox.close()
        self._arrived.close()

    def status(self) -> Status:
        problems = [f"thread {thread.name} has ended" for thread in self._threads if not thread.is_alive()]
        unreadable = self._feed.problem or self._live_feed.problem or self._trigger_feed.problem
        if self._has_registry.is_set():
            unreadable = unreadable or self._triggers.problem
        if unreadable:
            problems.append(unreadable)
        now = time.monotonic()
        for name, seen_at in (
            ("requests", self._seen_at),
            ("feed", self._feed.seen_at),
            ("live", self._live_feed.seen_at),
            *((("triggers", self._triggers.seen_at),) if self._has_registry.is_set() else ()),
            ("trigger checks", self._triggers.checks.seen_at),
            ("trigger events", self._trigger_feed.seen_at),
        ):
            if now - seen_at > _FROZEN_SECONDS:
                problems.append(f"the {name} thread has not moved for {now - seen_at:.0f} seconds")
        is_ready = bool(self._threads) and self._feed.is_caught_up.is_set() and not problems
        details = {
            "requests": self.requests_address,
            "notifications": self.notifications_address,
            "waiting_reads": len(self._state.waiting),
            "triggers": self._triggers.counts,
        }
        if self._keep.summary:
            details["keep"] = self._keep.summary
        if self._registry is not None:
            details["role"] = self._registry.keeper.status()
        return Status(
            part="relay", is_ready=is_ready, problems=tuple(problems), details=details, warnings=self._keep.warnings
        )

    def _run_thread(self, name: str, run: Callable[[], None]) -> None:
        self._threads.append(start_thread(name, run, on_failure=lambda _: self._thread_failed(name)))

    def _thread_failed(self, name: str) -> None:
        """Report a dead thread; `relay.__main__` then ends the process."""
        metrics.FAILURES.labels(name).inc()
        self.failed.set()

    def _role_lost(self, error: RoleLost) -> None:
        say_lost(error)
        self._thread_failed("relay-registry")

    def _await_finals(self) -> None:
        while not self._stop.is_set() and not self._feed.is_caught_up.wait(0.1):
            pass

    def _notify(self) -> None:
        self._await_finals()
        self._notifier.run(self._stop, self._on_subscribed, self._on_last_left)

    def _keep_live_requests(self) -> None:
        # The grace time for returning subscribers begins once they can connect.
        self._await_finals()
        self._live_requests.run(self._stop)

    def _keep_registry(self) -> None:
        """Take the role of the registry, at once or as soon as no other relay has it."""
        if self._registry is not None:
            self._registry.keeper.on_lost = self._role_lost
            term = self._registry.keeper.wait(self._stop)
            if term is None:
                return
            bus = self._registry.bus_of(term)
            self._triggers.write_over(bus)
            self._run_thread("relay-registry-door", lambda: self._door.run(self._stop))
            self._run_thread("relay-keep", lambda: self._keep.run(bus, self._stop))
        self._has_registry.set()
        self._run_thread("relay-trigger-progress", lambda: self._triggers.watch(self._stop))
        self._triggers.run(self._stop)

    def _knows_callbacks(self) -> bool:
        if self._registry is not None and self._registry.keeper.is_standby:
            return True
        return self._triggers.is_loaded.is_set()

    def _callback_of(self, trigger_id: str) -> str:
        if self._triggers.is_loaded.is_set():
            return self._triggers.callback_of(trigger_id)
        return self._callbacks.of(trigger_id)

    def _notify_everywhere(self, batch: Batch, seconds: float) -> bool:
        """Publish to the subscribers of every relay; called by the registry."""
        if self._registry is not None:
            self._door.notify(batch)
        return self._notifier.publish(batch, seconds)

    def _answer(self, peer: Peer, message: Message) -> None:
        if isinstance(peer, DistantPeer):
            self._door.answer(peer, message)
        else:
            self._reply(do.Reply(peer, message))

    def _publish_trigger_events(self) -> None:
        # By now subscribers are accepted, and callbacks are known.
        self._await_finals()
        while not self._stop.is_set() and not self._knows_callbacks():
            self._trigger_feed.seen_at = time.monotonic()
            self._stop.wait(0.1)
        self._trigger_feed.run(self._stop)

    def _on_subscribed(self, topic: bytes, subscriber: Holder) -> None:
        wanted = wanted_finals(topic)
        if wanted is not None:
            self._replays.ask(wanted)
        # Its ticks are followed before their job is requested.
        self._interest.add(topic)
        self._live_requests.subscribed(topic, subscriber)
        self._trigger_feed.subscribed(topic)
        if any(prefix.startswith(topic[: len(prefix)]) for prefix in _TOLD_PREFIXES):
            if self._has_registry.is_set():
                self._triggers.subscribed(topic)
            elif self._registry is not None:
                self._writers.submit(self._forwarding.subscribed, topic)

    def _on_last_left(self, topic: bytes) -> None:
        self._interest.remove(topic)
        self._live_requests.last_left(topic)

    def _on_awaited(self, final: StoredFinal) -> None:
        if not self._arrived.put(final, 1.0):
            metrics.DROPPED_ANSWERS.labels("awaited").inc()

    # ---- requests

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._outbox.wakeup.fileno(), zmq.POLLIN)
        poller.register(self._arrived.wakeup.fileno(), zmq.POLLIN)
        is_stalled = False
        while not self._stop.is_set():
            poller.poll(_STALLED_POLL_MILLISECONDS if is_stalled else _POLL_MILLISECONDS)
            self._seen_at = time.monotonic()
            try:
                self._round()
            except Exception:
                log.exception("round_failed")
                metrics.FAILURES.labels("round").inc()
            is_stalled = self._outbox.flush()
            if self._rest_seconds:
                self._stop.wait(self._rest_seconds)

    def _round(self) -> None:
        at_ns = time.time_ns()
        events: list[ev.Event] = [ev.TimePassed(at_ns)]
        for final in self._arrived.take():
            events.append(ev.FinalArrived(ing.HistoryReadyNotification.FromString(final.body[1:])))
        started = time.perf_counter()
        messages = self._receive(at_ns)
        if messages:
            self._refresh_venues(messages)
        self._carry_out([*events, *messages])
        metrics.WAITING.set(len(self._state.waiting))
        spent = time.perf_counter() - started
        if messages:
            metrics.ROUND_SECONDS.observe(spent)
        senders = [each.peer.identity for each in messages]
        self._rest_seconds = self._pace.rest(senders, spent, time.monotonic())

    def _receive(self, at_ns: int) -> list[ev.MessageReceived | ev.FrameRefused]:
        events: list[ev.MessageReceived | ev.FrameRefused] = []
        while len(events) < self._config.limits.round_messages:
            try:
                event = self._receive_one(at_ns)
            except zmq.Again:
                break
            if isinstance(event, ev.FrameRefused):
                metrics.BAD_FRAMES.labels(event.code).inc()
            else:
                metrics.MESSAGES.labels(type(event.message).DESCRIPTOR.name).inc()
            events.append(event)
        return events

    def _receive_one(self, at_ns: int) -> ev.MessageReceived | ev.FrameRefused:
        if self._keys is None:
            parts, count, address = receive(self._router)
            return event_of(parts, count, at_ns, address=address)
        parts, count, public, is_named = receive_with_key(self._router)
        name = self._keys.name_of(public)
        self._state.names = self._keys.all_names
        refusal = _NAMED if is_named else "" if name else _UNKNOWN_KEY
        return event_of(parts, count, at_ns, name=name, refusal=refusal)

    def _refresh_venues(self, events: Sequence[ev.Event]) -> None:
        venues, now = self._state.venues, time.monotonic()
        named = {
            event.message.ticker.rpartition(".")[2][:100]
            for event in events
            if isinstance(event, ev.MessageReceived)
            and isinstance(event.message, ing.SubmitHistoricalRequest | ing.DataRequest | ing.OHLCRequest)
        }
        refresh_seconds = self._config.limits.venue_refresh_seconds
        stale = [name for name in named if venues.is_stale(name, now, refresh_seconds)]
        if not stale:
            return
        try:
            venues.learn(self._ask_bus(lambda: self._relay_store.venues([*stale, ALL_VENUES])), now)
        except BusError:
            venues.is_blind = True

    def _carry_out(self, events: Sequence[ev.Event]) -> None:
        """Carry out new requests first, then queries about them, so that a cancellation finds a request sent just
        before it. Answers are sent in the order of the messages.
        """
        replies: list[tuple[int, do.Reply]] = []
        todo = [(order, command) for order, event in enumerate(events) for command in self._state.handle(event)]
        while todo:
            replies += [(order, command) for order, command in todo if isinstance(command, do.Reply)]
            todo = [(order, command) for order, command in todo if not isinstance(command, do.Reply)]
            kind = next((kind for kind in (do.Enqueue, do.LookUp) if any(isinstance(c, kind) for _, c in todo)), None)
            now = [entry for entry in todo if kind is None or isinstance(entry[1], kind)]
            later = [entry for entry in todo if kind is not None and not isinstance(entry[1], kind)]
            outcomes = self._do_all(now)
            todo = [(order, command) for order, event in outcomes for command in self._state.handle(event)] + later
        for _, reply in sorted(replies, key=lambda entry: entry[0]):
            self._reply(reply)

    def _do_all(self, entries: Sequence[tuple[int, do.Command]]) -> list[tuple[int, ev.Event]]:
        lookups = [(order, command) for order, command in entries if isinstance(command, do.LookUp)]
        if lookups:
            found = self._look_up([command for _, command in lookups])
            return [(order, event) for (order, _), event in zip(lookups, found, strict=True)]
        if len(entries) > 1 and isinstance(entries[0][1], do.Enqueue):
            return self._enqueue_together(entries)
        return [(order, event) for order, command in entries for event in self._carry_out_one(command)]

    def _enqueue_together(self, entries: Sequence[tuple[int, do.Command]]) -> list[tuple[int, ev.Event]]:
        """Write requests concurrently, so that they share one flush of the store's disk; those of one id stay in
        order.
        """
        lanes: list[list[tuple[int, do.Command]]] = [[] for _ in range(_WRITERS)]
        lane_of: dict[str, int] = {}
        for order, command in entries:
            if isinstance(command, do.Enqueue):
                request_id = command.submission.body.request_id
                lanes[lane_of.setdefault(request_id, len(lane_of) % _WRITERS)].append((order, command))

        def work(lane: Sequence[tuple[int, do.Command]]) -> list[tuple[int, ev.Event]]:
            return [(order, event) for order, command in lane for event in self._carry_out_one(command)]

        outcomes = self._writers.map(work, [lane for lane in lanes if lane])
        return sorted((entry for lane in outcomes for entry in lane), key=lambda entry: entry[0])

    def _carry_out_one(self, command: do.Command) -> list[ev.Event]:
        match command:
            case do.Enqueue():
                return [self._do(command, lambda: self._relay_store.enqueue(command))]
            case do.PublishControl():
                return [self._do(command, lambda: self._publish_control(command))]
            case do.ListVenues():
                return [self._do(command, lambda: self._list_venues(command))]
            case do.Announce():
                body = FINAL_TYPE + command.final.SerializeToString()
                batch = [(topic.encode(), body) for topic in command.topics]
                if self._notifier.publish(batch, 1.0):
                    metrics.PUBLISHED.labels("repeated").inc(len(batch))
                else:
                    metrics.DROPPED_REPLAYS.inc()
            case do.ReplayTopic() | do.ReadRows() | do.ReadStored():
                return self._long_answers.start(command)
            case do.AskTriggers():
                return self._ask_triggers(command)
        return []

    def _ask_triggers(self, command: do.AskTriggers) -> list[ev.Event]:
        peer, message = command.peer, command.message
        if self._registry is not None and not self._has_registry.is_set():
            try:
                self._ask_bus(lambda: self._forwarding.ask(peer, message, command.at_ns))
            except BusError:
                return [ev.CommandFailed(command, "UNAVAILABLE", ev.UNAVAILABLE)]
            return []
        asked = asked_of(peer, message, command.at_ns)
        if asked is None or self._triggers.ask(asked):
            return []
        return [ev.CommandFailed(command, "BUSY", BUSY_TRIGGERS)]

    def _publish_control(self, command: do.PublishControl) -> ev.Event:
        self._relay_store.publish_control(command)
        return ev.ControlPublished(command.peer, command.control)

    def _list_venues(self, command: do.ListVenues) -> ev.Event:
        records = self._relay_store.venues_for(command.query.venue.upper()[:100])
        return ev.VenuesListed(command.peer, command.query, records)

    # ---- the bus

    def _do(self, command: do.Command, call: Callable[[], ev.Event]) -> ev.Event:
        try:
            return self._ask_bus(call)
        except BusFull as error:
            log.warning("bus_full", error=str(error))
            return ev.CommandFailed(command, "BUSY", _BUSY)
        except BusError:
            return ev.CommandFailed(command, "UNAVAILABLE", ev.UNAVAILABLE)

    def _look_up(self, commands: list[do.LookUp]) -> list[ev.Event]:
        try:
            return list(self._ask_bus(lambda: self._relay_store.look_up(commands)))
        except BusError:
            return [ev.CommandFailed(command, "UNAVAILABLE", ev.UNAVAILABLE) for command in commands]

    def _ask_bus(self, call: Callable[[], Result]) -> Result:
        """Call the bus. After a failure, calls fail at once for a moment, so that a full queue is answered in time."""
        if time.monotonic() < self._bus_down_until:
            raise BusError("the bus was not reachable a moment ago")
        try:
            return call()
        except BusFull:
            raise
        except BusError as error:
            log.warning("bus_unavailable", error=str(error))
            metrics.BUS_FAILURES.labels("requests").inc()
            self._bus_down_until = time.monotonic() + _FAIL_FAST_SECONDS
            self._relay_store.forget_preparation()
            raise

    def _fail(self, failure: ev.CommandFailed) -> None:
        for reply in self._state.handle(failure):
            if isinstance(reply, do.Reply):
                self._reply(reply)

    def _reply(self, command: do.Reply) -> None:
        message = command.message
        if isinstance(message, cw.Error):
            metrics.ERRORS.labels(message.code).inc()
        elif isinstance(message, ing.SubmitResponse):
            metrics.SUBMISSIONS.labels(ing.SubmitResponse.SubmitStatus.Name(message.status)).inc()
        self._outbox.post(command.peer, frames_of(command.peer, message))
