"""The thread that requests realtime jobs for subscribers and triggers, and cancels them when none is left. It also
publishes errors on topics whose ticker is wrong.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusError, InvalidRequest
from candlewright.wire.frames import encode_body
from core.log import get_logger
from relay import metrics
from relay.doors.gate import inode_of
from relay.doors.notifier import Batch
from relay.doors.shares import TRIGGERS, Holder, Shares
from relay.live.subscriptions import Reader, Start, Subscriptions
from relay.settings import RelayConfig
from relay.store import RelayStore
from relay.topics import LiveTopic, live_topic, named_topic
from relay.venues.ticker_judge import TickerJudge
from relay.venues.topic_checks import TopicChecks

#: How often (s) the subscriptions are checked for due work when nothing happens: while some is to come, and without.
_DUE_SECONDS, _IDLE_SECONDS = 0.25, 1.0
_RETRY_SECONDS = 0.5
_TOGETHER = 500
_PUBLISH_SECONDS = 0.25
#: The code of the Error on a topic whose ticker no venue lists.
WRONG_TICKER = "UNKNOWN_TICKER"
#: The code of the Error on a topic that exceeds its subscribers' limits.
TOO_MANY = "TOO_MANY_TOPICS"
_SWEEP_SECONDS = 1.0
#: A relay that has not reported for this long (s) has stopped; its subscribers have moved to other relays.
ALIVE_SECONDS = 15.0
_SUBSCRIBERS = Holder("")
log = get_logger()


class LiveRequests:
    """`subscribed`, `last_left` and `follow` never block, and are carried out in order.

    `is_registry`: whether this relay cancels the requests of relays that have stopped.
    """

    def __init__(
        self,
        relay_store: RelayStore,
        config: RelayConfig,
        publish: Callable[[Batch, float], bool],
        *,
        is_registry: Callable[[], bool] = lambda: False,
    ) -> None:
        self._relay_store = relay_store
        self._is_registry = is_registry
        self._alive_at = 0.0
        self._publish = publish
        self._subscriptions = Subscriptions(config.limits)
        self._judge = TickerJudge(relay_store, config.limits.venue_refresh_seconds)
        self._checks = TopicChecks(config.limits)
        self._shares = Shares(config.limits)
        self._max_refused = config.limits.max_live_topics
        #: Holders that were refused a topic; retried when there is room.
        self._refused: dict[str, set[Holder]] = {}
        self._sweep_at = 0.0
        self._news: deque[tuple[bool, bytes, Holder]] = deque()
        self._changed = threading.Event()
        self._is_adopted = False
        self.seen_at = time.monotonic()

    def subscribed(self, topic: bytes, subscriber: Holder) -> None:
        self._note(topic, subscriber, is_wanted=True)

    def last_left(self, topic: bytes) -> None:
        self._note(topic, _SUBSCRIBERS, is_wanted=False)

    def follow(self, topic: str, *, is_wanted: bool) -> None:
        """Note that registered triggers read this topic, or no longer do."""
        self._note(topic.encode(), TRIGGERS, is_wanted=is_wanted)

    def _note(self, topic: bytes, holder: Holder, *, is_wanted: bool) -> None:
        if named_topic(topic) is not None:
            self._news.append((is_wanted, topic, holder))
            self._changed.set()

    def wake(self) -> None:
        """Have `run` check its stop event."""
        self._changed.set()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._changed.wait(_DUE_SECONDS if self._subscriptions.has_due or len(self._checks) else _IDLE_SECONDS)
            self._changed.clear()
            self.seen_at = time.monotonic()
            try:
                self._say_alive()
                self._take_news()
                if not self._is_adopted:
                    self._subscriptions.adopt(self._relay_store.live_requests(), time.monotonic())
                    self._is_adopted = True
                self._cancel()
                self._start(self._subscriptions.to_start(time.monotonic())[:_TOGETHER])
                self._tell_of_wrong_tickers()
            except BusError as error:
                log.warning("live_requests_delayed", error=str(error))
                metrics.BUS_FAILURES.labels("live_requests").inc()
                self._relay_store.forget_preparation()
                # It is unknown how far this came; the table shows it.
                self._is_adopted = False
                stop.wait(_RETRY_SECONDS)
                self._changed.set()
            metrics.LIVE_TOPICS.set(len(self._subscriptions))

    def _say_alive(self) -> None:
        now = time.monotonic()
        if now < self._alive_at:
            return
        self._relay_store.say_alive(ALIVE_SECONDS)
        if self._is_registry() and (count := self._relay_store.cancel_orphans(time.time_ns())):
            log.info("orphans_cancelled", topics=count)
        self._alive_at = now + ALIVE_SECONDS / 3

    def _take_news(self) -> None:
        has_room = self._sweep()
        refusals: dict[str, str] = {}
        while self._news:
            is_wanted, subscription, holder = self._news.popleft()
            name = subscription.decode()
            if holder is not TRIGGERS:
                self._note_check(name, is_wanted=is_wanted)
            topic = live_topic(subscription)
            if topic is None:
                continue
            if is_wanted:
                if refusal := self._take(topic, holder):
                    refusals[name] = refusal
            else:
                self._give_back(name, holder)
                has_room = True
        if has_room:
            for name, holders in list(self._refused.items()):
                topic = live_topic(name.encode())
                if topic is not None:
                    for each in list(holders):
                        self._take(topic, each)
        if refusals:
            self._tell_of_refusals(refusals)

    def _take(self, topic: LiveTopic, holder: Holder) -> str:
        """Take the topic for the holder; returns an empty string, or the reason for a refusal, which is retried when
        there is room.
        """
        refusal = self._shares.take(topic.name, holder)
        if not refusal and not self._subscriptions.subscribed(topic, _reader(holder)):
            self._shares.give_back(topic.name, [holder])
            refusal = f"the platform follows {self._max_refused} live topics, and can follow no more"
        if not refusal:
            self._withdraw(topic.name, holder)
        elif len(self._refused) < self._max_refused:
            self._refused.setdefault(topic.name, set()).add(holder)
        # A topic that others already have is delivered anyway.
        return "" if self._shares.is_held(topic.name) else refusal

    def _give_back(self, name: str, holder: Holder) -> None:
        """Give a topic back when the last of its subscribers, or of the triggers, has left."""
        is_trigger = holder is TRIGGERS
        self._shares.give_back(name, [TRIGGERS] if is_trigger else self._shares.others(name))
        for each in [each for each in self._refused.get(name, ()) if (each is TRIGGERS) == is_trigger]:
            self._withdraw(name, each)
        self._subscriptions.last_left(name, time.monotonic(), _reader(holder))

    def _withdraw(self, name: str, holder: Holder) -> None:
        holders = self._refused.get(name, set())
        holders.discard(holder)
        if not holders:
            self._refused.pop(name, None)

    def _sweep(self) -> bool:
        """Give back the topics of ended connections, from time to time; returns whether there is more room."""
        if time.monotonic() < self._sweep_at:
            return False
        self._sweep_at = time.monotonic() + _SWEEP_SECONDS
        holders = {*self._shares.connections(), *(each for group in self._refused.values() for each in group)}
        ended = {each for each in holders - {TRIGGERS} if not each.inode or inode_of(each.descriptor) != each.inode}
        for holder in ended:
            for name in self._shares.ended(holder):
                self._subscriptions.last_left(name, time.monotonic(), Reader.SUBSCRIBERS)
        for name in [name for name, group in self._refused.items() if group & ended]:
            for holder in self._refused[name] & ended:
                self._withdraw(name, holder)
        return bool(ended)

    def _tell_of_refusals(self, refusals: Mapping[str, str]) -> None:
        metrics.UNSERVED_TOPICS.labels("too_many").inc(len(refusals))
        log.warning("too_many_live_topics", topics=len(refusals), reason=next(iter(refusals.values())))
        batch = [
            (
                name.encode(),
                encode_body(cw.Error(code=TOO_MANY, text=f"{text}; it starts once there is room", topic=name)),
            )
            for name, text in refusals.items()
        ]
        if not self._publish(batch, _PUBLISH_SECONDS):
            metrics.DROPPED_REPLAYS.inc(len(batch))

    def _note_check(self, name: str, *, is_wanted: bool) -> None:
        if not is_wanted:
            self._checks.left(name)
        elif not self._checks.subscribed(name, time.monotonic()):
            metrics.UNSERVED_TOPICS.labels("unchecked").inc()

    def _tell_of_wrong_tickers(self) -> None:
        """Publish errors on topics with wrong tickers. The subscriptions stay, since a market may be listed later."""
        due = self._checks.due(time.monotonic(), _TOGETHER)
        if not due:
            return
        named = [named for name in due if (named := named_topic(name.encode())) is not None]
        wrong = {
            name: found.text
            for name, found in self._judge.judge(named).items()
            if self._checks.judged(name, found.verdict, time.monotonic())
        }
        if wrong:
            metrics.UNSERVED_TOPICS.labels("wrong_ticker").inc(len(wrong))
            log.info("wrong_tickers", topics=len(wrong), first=next(iter(wrong.values())))
            batch = [(name.encode(), wrong_ticker(name, text)) for name, text in wrong.items()]
            if not self._publish(batch, _PUBLISH_SECONDS):
                for name in wrong:
                    self._checks.subscribed(name, time.monotonic())
        if len(due) == _TOGETHER or self._checks.due(time.monotonic(), 1):
            self._changed.set()

    def _start(self, starts: list[Start]) -> None:
        if not starts:
            return
        self._judge.refresh(start.topic.ticker.venue for start in starts)
        valid = []
        for start in starts:
            try:
                self._judge.book.check_venue(start.topic.ticker.venue)
            except InvalidRequest as error:
                metrics.UNSERVED_TOPICS.labels("invalid").inc()
                if self._subscriptions.refused(start.topic, time.monotonic()):
                    log.info("live_topic_not_started", topic=start.topic.name, reason=str(error))
            else:
                valid.append(start)
        if not valid:
            return
        self._relay_store.start_live({start.topic.name: start.request for start in valid}, time.time_ns())
        self._subscriptions.started(valid)
        for start in valid:
            log.info("live_topic_started", topic=start.topic.name, request_id=start.request_id)
        self._changed.set()

    def _cancel(self) -> None:
        due = self._subscriptions.to_cancel(time.monotonic())
        if due:
            self._relay_store.cancel_live(due, time.time_ns())
            self._subscriptions.cancelled(due)
            log.info("live_topics_cancelled", topics=len(due))


def _reader(holder: Holder) -> Reader:
    return Reader.TRIGGERS if holder is TRIGGERS else Reader.SUBSCRIBERS


def wrong_ticker(topic: str, reason: str) -> bytes:
    """The type id and message of the Error for a topic's subscribers, which no client mistakes for data."""
    end = "" if reason.endswith("?") else "."
    text = f"{reason}{end} The subscription stays, in case the ticker is listed later."
    return encode_body(cw.Error(code=WRONG_TICKER, text=text, topic=topic))
