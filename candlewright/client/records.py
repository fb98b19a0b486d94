"""Values that the client and its user exchange: plain data, times in nanoseconds since the epoch (UTC)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from candlewright.client.notebook.cards import card, code
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing


@dataclass(frozen=True, slots=True)
class Range:
    """A historical request as the caller means it; `start` and `end` in ns, half-open by open time.

    `refresh`: request the range from the venue even if the table proves it.
    """

    ticker: str
    period_seconds: int
    start: int
    end: int
    limit: int | None = None
    refresh: bool = False


class Outcome(StrEnum):
    """How a historical request ended. NOT_FOUND: the venue has no candle in the whole range."""

    OK = "OK"
    NOT_FOUND = "NOT_FOUND"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


@dataclass(kw_only=True, frozen=True, slots=True)
class Notification:
    """The final notification of a historical request (HistoryReadyNotification).

    `start`, `end`, `completed_at` in ns; `table`: where the `row_count` rows are; `error_message` may be empty.
    """

    request_id: str
    ticker: str
    period_seconds: int
    start: int
    end: int
    status: Outcome
    error_message: str
    table: str
    row_count: int
    completed_at: int

    @classmethod
    def from_message(cls, message: ing.HistoryReadyNotification) -> "Notification":
        return cls(
            request_id=message.request_id,
            ticker=message.ticker,
            period_seconds=message.period_seconds,
            start=message.start_time,
            end=message.end_time,
            status=_outcome(message.status),
            error_message=message.error_message,
            table=f"{message.iceberg_namespace}.{message.iceberg_table}".strip("."),
            row_count=message.row_count,
            completed_at=message.completed_at,
        )


def _outcome(status: int) -> Outcome:
    known = ing.HistoryReadyNotification.NotificationStatus
    return Outcome(known.Name(known.ValueType(status))) if status in known.values() else Outcome.ERROR


@dataclass(frozen=True, slots=True)
class Submission:
    """An accepted request; `is_duplicate` when the platform knew it already."""

    request_id: str
    topic: str
    is_duplicate: bool


@dataclass(kw_only=True, frozen=True, slots=True)
class RequestState:
    """`state` is queued, running, done or unknown; `notification` is there when done.

    `reason`: what an unfinished request is waiting for, as a sentence; empty while nothing delays it. `closed_until`
    (ns): the start of the candles that had not closed, and are left out; None if all had.
    """

    request_id: str
    state: str
    done_candles: int
    expected_candles: int
    notification: Notification | None
    reason: str = ""
    closed_until: int | None = None

    @classmethod
    def from_message(cls, message: cw.RequestState) -> "RequestState":
        is_final = message.HasField("notification")
        return cls(
            request_id=message.request_id,
            state=message.state,
            done_candles=message.done_candles,
            expected_candles=message.expected_candles,
            notification=Notification.from_message(message.notification) if is_final else None,
            # For a live job that failed and is retried, the notification says why.
            reason=message.reason or (message.notification.error_message if message.state == "queued" else ""),
            closed_until=message.closed_until or None,
        )


@dataclass(frozen=True, slots=True)
class Venue:
    """A venue that can be requested; `depth_candles` 0 means back to the listing.

    `is_live`: an ingestor serves it now. `updated_at` in ns: when it last reported its markets, 0 = never.
    """

    name: str
    period_seconds: tuple[int, ...]
    market_count: int
    depth_candles: int
    is_live: bool
    updated_at: int

    @classmethod
    def from_message(cls, message: cw.Venue) -> "Venue":
        return cls(
            name=message.venue,
            period_seconds=tuple(message.period_seconds),
            market_count=message.market_count or len(message.markets),
            depth_candles=message.depth_candles,
            is_live=message.is_live,
            updated_at=message.updated_at,
        )


@dataclass(frozen=True, slots=True)
class Market:
    """`ticker` is the name in requests, `symbol` ccxt's and `market_id` the venue's. Not active: not traded."""

    ticker: str
    symbol: str
    market_id: str
    is_active: bool

    @classmethod
    def from_message(cls, venue: str, message: cw.Market) -> "Market":
        return cls(f"{message.symbol}.{venue}", message.symbol, message.market_id, message.active)


@dataclass(kw_only=True, frozen=True, slots=True)
class Snapshot:
    """The newest prices of a ticker; None if the venue did not give one."""

    ticker: str
    exchange_time: int
    received_at: int
    last: float | None
    bid: float | None
    ask: float | None
    bid_size: float | None
    ask_size: float | None
    volume_24h: float | None
    sequence: int

    @classmethod
    def from_message(cls, message: cw.Snapshot) -> "Snapshot":
        return cls(
            ticker=message.ticker,
            exchange_time=message.exchange_time,
            received_at=message.received_at,
            last=message.last if message.HasField("last") else None,
            bid=message.bid if message.HasField("bid") else None,
            ask=message.ask if message.HasField("ask") else None,
            bid_size=message.bid_size if message.HasField("bid_size") else None,
            ask_size=message.ask_size if message.HasField("ask_size") else None,
            volume_24h=message.volume_24h if message.HasField("volume_24h") else None,
            sequence=message.sequence,
        )


@dataclass(kw_only=True, frozen=True, slots=True)
class TriggerInfo:
    """A registered trigger. `state` is active, or suspended with the `reason`; `events` counts its events so far.

    `is_starting`: it is stored, but the pipeline has not confirmed yet that it runs everywhere. Its cost is only known
    if it was requested alone, and some seconds old: `partitions` (values of PARTITION BY for which it keeps state),
    `state_bytes`, and the `steps` of its searches and functions so far. A slow trigger falls behind alone: then
    `waiting_rows` wait for it, it is `behind_ns` behind the newest of them, and a row takes it `row_ns` of processor
    time.
    """

    trigger_id: str
    sql: str
    tickers: tuple[str, ...]
    state: str
    reason: str
    registered_at: int
    events: int
    is_starting: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 0
    state_bytes: int = 0
    steps: int = 0
    #: Registered views that its text reads, directly or through others.
    views: tuple[str, ...] = ()
    waiting_rows: int = 0
    behind_ns: int = 0
    row_ns: int = 0

    @classmethod
    def from_message(cls, message: cw.TriggerInfo) -> "TriggerInfo":
        return cls(
            trigger_id=message.trigger_id,
            sql=message.sql_pattern,
            tickers=tuple(message.tickers),
            state=message.state,
            reason=message.reason,
            registered_at=message.registered_at,
            events=message.events,
            is_starting=message.is_starting,
            parameters=dict(message.parameters),
            partitions=message.partitions,
            state_bytes=message.kept_bytes,
            steps=message.steps,
            views=tuple(message.views),
            waiting_rows=message.waiting_rows,
            behind_ns=message.behind_ns,
            row_ns=message.row_ns,
        )

    def _repr_html_(self) -> str:
        facts = [
            "starting" if self.is_starting else self.state,
            ", ".join(self.tickers) or "all active tickers",
            f"{self.events:,} event{'' if self.events == 1 else 's'}",
        ]
        parameters = ", ".join(f"{name} = {value}" for name, value in sorted(self.parameters.items()))
        notes = [f"parameters: {parameters}"] if parameters else []
        if self.reason:
            notes.append(f"reason: {self.reason}")
        return card(self.trigger_id, facts, code(self.sql), notes=notes)


@dataclass(kw_only=True, frozen=True, slots=True)
class ViewInfo:
    """A registered view, or a built-in one, whose version is 0 and whose readers are unknown. `columns`: names with
    their types. `reads`: the views that it reads, directly or through others; `read_by`: the views that read it.
    `trigger_count` triggers read it; `triggers` are their ids, if a single view was requested.
    """

    name: str
    sql: str
    version: int
    registered_at: int
    columns: Mapping[str, str]
    reads: tuple[str, ...]
    read_by: tuple[str, ...]
    trigger_count: int
    triggers: tuple[str, ...]

    @classmethod
    def from_message(cls, message: cw.ViewInfo) -> "ViewInfo":
        return cls(
            name=message.name,
            sql=message.sql,
            version=message.version,
            registered_at=message.registered_at,
            columns=dict(zip(message.columns, message.column_types, strict=False)),
            reads=tuple(message.reads),
            read_by=tuple(message.read_by),
            trigger_count=message.trigger_count,
            triggers=tuple(message.triggers),
        )


@dataclass(frozen=True, slots=True)
class RegisteredView:
    """An accepted view; not `is_new` if exactly this one was already registered. `restarted`: ids of the triggers
    that read it and started afresh because it changed. `warnings` are sentences.
    """

    name: str
    version: int
    is_new: bool
    restarted: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """An accepted trigger; not `is_new` if exactly this one was already registered. `warnings` are sentences."""

    trigger_id: str
    is_new: bool
    warnings: tuple[str, ...]
