"""What a subscription asks for: a live topic, kept finals, or every topic under a bare prefix."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from candlewright.wire import streams
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import WEEK_SECONDS
from candlewright.wire.ticker import Ticker
from relay.doors import ownership

TICKS = streams.TICKS.prefix.encode()
OHLC = streams.BARS.prefix.encode()
_FINALS = (streams.RESPONSES.prefix, streams.FINALS.prefix)
#: The canonical form of a period in a topic, so that each topic has only one name.
_PERIOD = re.compile(r"[1-9][0-9]{0,5}")


def live_name(ticker: str, period_seconds: int) -> str:
    """The name of the topic of a ticker's bars, or of its ticks for period 0."""
    return streams.bars(ticker, period_seconds) if period_seconds else streams.ticks(ticker)


def request_topic(request_id: str, client_id: str) -> str:
    """The topic on which a request's answer is announced: the client's, or without a client id the request's own."""
    return streams.response(client_id) if client_id else streams.history_ready(request_id)


def final_topics(request_id: str, client_id: str, owner: str = "") -> tuple[str, ...]:
    """The topics of a final notification: both, except that of an id that belongs to another client than the request's
    owner.
    """
    own = (streams.history_ready(request_id),) if ownership.may_publish(owner, request_id) else ()
    return (*own, streams.response(client_id)) if client_id else own


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A complete topic of ticks or, with `period_seconds`, of bars; the venue may be unknown."""

    name: str
    ticker: Ticker
    period_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Named:
    """The parts of a topic of ticks or bars, valid or not. `period` is the text of one of bars, empty for ticks.

    `ticker` and `period_seconds` are None if their text is invalid.
    """

    name: str
    text: str
    period: str
    ticker: Ticker | None
    period_seconds: int | None

    @property
    def venue(self) -> str:
        return self.text.rpartition(".")[2].upper()


def named_topic(subscription: bytes) -> Named | None:
    """The parts of a subscribed topic; None for a bare prefix and for other kinds of topics."""
    try:
        name = subscription.decode()
    except UnicodeDecodeError:
        return None
    text, period = name.removeprefix(streams.TICKS.prefix), ""
    if subscription.startswith(OHLC):
        text, _, period = name.removeprefix(streams.BARS.prefix).rpartition(":")
    elif not subscription.startswith(TICKS):
        return None
    if not text or (subscription.startswith(OHLC) and not period):
        return None
    try:
        ticker = Ticker.parse(text)
    except InvalidRequest:
        ticker = None
    is_period = _PERIOD.fullmatch(period) and int(period) <= WEEK_SECONDS
    return Named(name, text, period, ticker, int(period) if is_period else None)


def live_topic(subscription: bytes) -> LiveTopic | None:
    """The live topic of a subscription; None for a bare prefix, a malformed ticker, an invalid period, and other kinds
    of topics.
    """
    named = named_topic(subscription)
    if named is None or named.ticker is None or (named.period and named.period_seconds is None):
        return None
    return LiveTopic(named.name, named.ticker, named.period_seconds or 0)


@dataclass(frozen=True, slots=True)
class RequestFinal:
    """The subscriber waits for the final of one request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ClientFinals:
    """The subscriber waits for the finals of one client."""

    client_id: str


@dataclass(frozen=True, slots=True)
class AllFinals:
    """The subscriber takes every topic that starts with this bare prefix."""

    prefix: str


Wanted = RequestFinal | ClientFinals | AllFinals


def served_by(subscription: bytes, known: Collection[bytes]) -> list[bytes]:
    """The topics in `known` that a new subscription covers: the complete one that it names, or all under a bare
    prefix.
    """
    if subscription in known:
        return [subscription]
    if b":" in subscription.rstrip(b":"):
        return []
    return [topic for topic in known if topic.startswith(subscription)]


def wanted_finals(subscription: bytes) -> Wanted | None:
    """The kept finals to replay for a new subscription.

    A subscription that names an id counts as a complete topic: `RESPONSE:a` does not get the finals kept for
    `RESPONSE:ab`.
    """
    try:
        topic = subscription.decode()
    except UnicodeDecodeError:
        return None
    if any(prefix.startswith(topic) for prefix in _FINALS):
        return AllFinals(topic)
    if topic.startswith(streams.FINALS.prefix):
        return RequestFinal(topic.removeprefix(streams.FINALS.prefix))
    if topic.startswith(streams.RESPONSES.prefix):
        return ClientFinals(topic.removeprefix(streams.RESPONSES.prefix))
    return None
