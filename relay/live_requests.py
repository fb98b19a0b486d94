"""The thread that asks for realtime jobs for subscribers and triggers, and cancels them when nobody is left."""

import threading
import time
from collections import deque

from core.errors import BusError, InvalidRequest
from core.log import get_logger
from relay import metrics, validation
from relay.register import Register
from relay.settings import RelayConfig
from relay.subscriptions import Reader, Start, Subscriptions
from relay.topics import live_topic
from relay.venue_book import ALL_VENUES, VenueBook

#: The state is looked at this often without news, for what has become due.
_IDLE_SECONDS = 0.25
_RETRY_SECONDS = 0.5
_TOGETHER = 500
log = get_logger()


class LiveRequests:
    """`subscribed`, `last_left` and `follow` never block; they are carried out in their order."""

    def __init__(self, register: Register, config: RelayConfig) -> None:
        self._register = register
        self._state = Subscriptions(config.limits)
        self._venues = VenueBook()
        self._news: deque[tuple[bool, bytes, Reader]] = deque()
        self._changed = threading.Event()
        self._is_adopted = False
        self.seen_at = time.monotonic()

    def subscribed(self, topic: bytes) -> None:
        self._tell(True, topic, Reader.SUBSCRIBERS)

    def last_left(self, topic: bytes) -> None:
        self._tell(False, topic, Reader.SUBSCRIBERS)

    def follow(self, topic: str, is_wanted: bool) -> None:
        """Registered triggers read this topic, or do no more."""
        self._tell(is_wanted, topic.encode(), Reader.TRIGGERS)

    def _tell(self, is_wanted: bool, topic: bytes, reader: Reader) -> None:
        if live_topic(topic) is not None:
            self._news.append((is_wanted, topic, reader))
            self._changed.set()

    def wake(self) -> None:
        """Let `run` look at its stop event."""
        self._changed.set()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._changed.wait(_IDLE_SECONDS)
            self._changed.clear()
            self.seen_at = time.monotonic()
            try:
                self._take_news()
                if not self._is_adopted:
                    self._state.adopt(self._register.live_requests(), time.monotonic())
                    self._is_adopted = True
                self._cancel()
                self._start(self._state.to_start(time.monotonic())[:_TOGETHER])
            except BusError as error:
                log.warning("live_requests_delayed", error=str(error))
                metrics.BUS_FAILURES.labels("live_requests").inc()
                self._register.forget_preparation()
                # How far it came is not known: the table tells.
                self._is_adopted = False
                stop.wait(_RETRY_SECONDS)
                self._changed.set()
            metrics.LIVE_TOPICS.set(len(self._state))

    def _take_news(self) -> None:
        while self._news:
            is_wanted, subscription, reader = self._news.popleft()
            topic = live_topic(subscription)
            if topic is None:
                continue
            if not is_wanted:
                self._state.last_left(topic.name, time.monotonic(), reader)
            elif not self._state.subscribed(topic, reader):
                metrics.UNSERVED_TOPICS.labels("too_many").inc()
                log.warning("too_many_live_topics", topic=topic.name)

    def _start(self, starts: list[Start]) -> None:
        if not starts:
            return
        self._look_up_venues(starts)
        valid = []
        for start in starts:
            try:
                validation.check_ticker(str(start.topic.ticker), self._venues)
            except InvalidRequest as error:
                metrics.UNSERVED_TOPICS.labels("invalid").inc()
                if self._state.refused(start.topic, time.monotonic()):
                    log.info("live_topic_starts_nothing", topic=start.topic.name, reason=str(error))
            else:
                valid.append(start)
        if not valid:
            return
        self._register.start_live({start.topic.name: start.request for start in valid}, time.time_ns())
        self._state.started(valid)
        for start in valid:
            log.info("live_topic_started", topic=start.topic.name, request_id=start.request_id)
        self._changed.set()

    def _look_up_venues(self, starts: list[Start]) -> None:
        names = sorted({start.topic.ticker.venue for start in starts})
        self._venues.learn(self._register.venues([*names, ALL_VENUES]), time.monotonic())

    def _cancel(self) -> None:
        due = self._state.to_cancel(time.monotonic())
        if due:
            self._register.cancel_live(due, time.time_ns())
            self._state.cancelled(due)
            log.info("live_topics_cancelled", topics=len(due))
