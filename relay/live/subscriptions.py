"""Decides which realtime requests the subscribers of live topics and the registered triggers need. Pure: no bus, clock
or thread.

This is a ledger, which `LiveRequests` asks what is due, and not the state of a server. `at` is monotonic seconds.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from bus.topics import SUBSCRIPTION_PREFIX
from candlewright.wire import ingestor_pb2 as ing
from relay.settings import RelayLimits
from relay.topics import LiveTopic


class Reader(Enum):
    """The kinds of readers of a topic; each kind begins and ends once."""

    SUBSCRIBERS = auto()
    TRIGGERS = auto()


@dataclass(frozen=True, slots=True)
class Start:
    """Request the topic under this id; the request may be repeated."""

    topic: LiveTopic
    request_id: str

    @property
    def request(self) -> ing.DataRequest:
        params = ing.RealtimeParams()
        if self.topic.period_seconds:
            params.include_ohlc = True
            params.ohlc_period_seconds.append(self.topic.period_seconds)
        else:
            params.include_ticks = True
        kind = ing.DataRequest.REALTIME_TICKS
        return ing.DataRequest(request_id=self.request_id, type=kind, ticker=str(self.topic.ticker), realtime=params)


class Subscriptions:
    """One request per topic, from its first reader until some time after the last one left."""

    def __init__(self, limits: RelayLimits, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._limits = limits
        self._new_id = new_id
        self._wanted: dict[str, LiveTopic] = {}
        self._readers: dict[str, set[Reader]] = {}
        #: Request ids by topic, as in the table on the bus, and when those without subscribers are to be cancelled.
        self._requests: dict[str, str] = {}
        self._cancel_at: dict[str, float] = {}
        #: Requests whose cancellation was begun; it is completed first, and their ids are not used again.
        self._leaving: set[str] = set()
        #: Wanted topics whose request may not be on the bus, and when to retry those that could not be served.
        self._to_start: dict[str, None] = {}
        self._retry_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def has_due(self) -> bool:
        """Whether anything is to be started or cancelled, now or later."""
        return bool(self._to_start or self._cancel_at)

    def adopt(self, tables: tuple[Mapping[str, str], Mapping[str, str]], at: float) -> None:
        """Take over the running and leaving requests in the table, at the start or after an outage; an earlier run may
        have died between writing the table and sending the request.
        """
        running, leaving = tables
        self._requests = {**running, **leaving}
        self._leaving = set(leaving)
        self._to_start = dict.fromkeys(self._wanted)
        grace = at + self._limits.grace_seconds
        self._cancel_at = {name: grace for name in running if name not in self._wanted}
        self._cancel_at.update(dict.fromkeys(leaving, at))

    def subscribed(self, topic: LiveTopic, reader: Reader = Reader.SUBSCRIBERS) -> bool:
        """Note that a reader wants the topic; False if there are too many."""
        if topic.name not in self._wanted and len(self._wanted) >= self._limits.max_live_topics:
            return False
        self._readers.setdefault(topic.name, set()).add(reader)
        if topic.name not in self._wanted:
            self._wanted[topic.name] = topic
            if topic.name not in self._leaving:
                self._cancel_at.pop(topic.name, None)
            # A running request is repeated, in case an earlier run was interrupted.
            self._to_start[topic.name] = None
        return True

    def last_left(self, name: str, at: float, reader: Reader = Reader.SUBSCRIBERS) -> None:
        """Note that the last reader of this kind has left."""
        readers = self._readers.get(name, set())
        if reader not in readers:
            return
        readers.discard(reader)
        if readers:
            return
        del self._readers[name], self._wanted[name]
        self._to_start.pop(name, None)
        self._retry_at.pop(name, None)
        if name in self._requests and name not in self._leaving:
            self._cancel_at[name] = at + self._limits.linger_seconds

    def to_start(self, at: float) -> list[Start]:
        due = [name for name in self._to_start if self._retry_at.get(name, at) <= at and name not in self._leaving]
        return [Start(self._wanted[name], self._requests.get(name) or self._fresh(name)) for name in due]

    def to_cancel(self, at: float) -> dict[str, str]:
        """The requests that are due for cancellation: ids by topic."""
        return {name: self._requests[name] for name, due in self._cancel_at.items() if due <= at}

    def started(self, starts: list[Start]) -> None:
        for start in starts:
            name = start.topic.name
            self._requests[name] = start.request_id
            self._to_start.pop(name, None)
            self._retry_at.pop(name, None)

    def refused(self, topic: LiveTopic, at: float) -> bool:
        """Note that the topic cannot be served now; it is retried, since an ingestor may appear. True the first
        time.
        """
        is_first = topic.name not in self._retry_at
        self._retry_at[topic.name] = at + self._limits.unserved_retry_seconds
        return is_first

    def cancelled(self, names: Mapping[str, str]) -> None:
        for name in names:
            self._requests.pop(name, None)
            self._cancel_at.pop(name, None)
            self._leaving.discard(name)

    def _fresh(self, name: str) -> str:
        return f"{SUBSCRIPTION_PREFIX}{name}:{self._new_id()}"
