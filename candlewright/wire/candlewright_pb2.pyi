from candlewright.wire import ingestor_pb2 as _ingestor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Side(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Side]
    BUY: _ClassVar[Side]
    SELL: _ClassVar[Side]
UNKNOWN: Side
BUY: Side
SELL: Side

class Error(_message.Message):
    __slots__ = ("code", "text", "request_id", "topic", "from_sequence", "newest_sequence", "registered_at", "at")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    request_id: str
    topic: str
    from_sequence: int
    newest_sequence: int
    registered_at: int
    at: int
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., request_id: _Optional[str] = ..., topic: _Optional[str] = ..., from_sequence: _Optional[int] = ..., newest_sequence: _Optional[int] = ..., registered_at: _Optional[int] = ..., at: _Optional[int] = ...) -> None: ...

class Tick(_message.Message):
    __slots__ = ("ticker", "trade_id", "timestamp", "price", "size", "side", "received_at")
    TICKER_FIELD_NUMBER: _ClassVar[int]
    TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    ticker: str
    trade_id: str
    timestamp: int
    price: float
    size: float
    side: Side
    received_at: int
    def __init__(self, ticker: _Optional[str] = ..., trade_id: _Optional[str] = ..., timestamp: _Optional[int] = ..., price: _Optional[float] = ..., size: _Optional[float] = ..., side: _Optional[_Union[Side, str]] = ..., received_at: _Optional[int] = ...) -> None: ...

class TickBatch(_message.Message):
    __slots__ = ("ticker", "first_sequence", "timestamp", "price", "size", "side", "trade_id", "received_at", "clock_ahead", "exchange_ahead")
    TICKER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ticker: str
    first_sequence: int
    timestamp: _containers.RepeatedScalarFieldContainer[int]
    price: _containers.RepeatedScalarFieldContainer[float]
    size: _containers.RepeatedScalarFieldContainer[float]
    side: _containers.RepeatedScalarFieldContainer[Side]
    trade_id: _containers.RepeatedScalarFieldContainer[str]
    received_at: _containers.RepeatedScalarFieldContainer[int]
    clock_ahead: int
    exchange_ahead: int
    def __init__(self, ticker: _Optional[str] = ..., first_sequence: _Optional[int] = ..., timestamp: _Optional[_Iterable[int]] = ..., price: _Optional[_Iterable[float]] = ..., size: _Optional[_Iterable[float]] = ..., side: _Optional[_Iterable[_Union[Side, str]]] = ..., trade_id: _Optional[_Iterable[str]] = ..., received_at: _Optional[_Iterable[int]] = ..., clock_ahead: _Optional[int] = ..., exchange_ahead: _Optional[int] = ...) -> None: ...

class OHLCV(_message.Message):
    __slots__ = ("open_time", "open", "high", "low", "close", "volume", "quote_volume", "trade_count", "period_seconds", "ticker", "complete", "revision", "sequence", "source", "from_client")
    OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    QUOTE_VOLUME_FIELD_NUMBER: _ClassVar[int]
    TRADE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FROM_CLIENT_FIELD_NUMBER: _ClassVar[int]
    open_time: int
    open: float
    high: float
    low: float
    close: float
    volume: float
    quote_volume: float
    trade_count: int
    period_seconds: int
    ticker: str
    complete: bool
    revision: int
    sequence: int
    source: str
    from_client: bool
    def __init__(self, open_time: _Optional[int] = ..., open: _Optional[float] = ..., high: _Optional[float] = ..., low: _Optional[float] = ..., close: _Optional[float] = ..., volume: _Optional[float] = ..., quote_volume: _Optional[float] = ..., trade_count: _Optional[int] = ..., period_seconds: _Optional[int] = ..., ticker: _Optional[str] = ..., complete: bool = ..., revision: _Optional[int] = ..., sequence: _Optional[int] = ..., source: _Optional[str] = ..., from_client: bool = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("ticker", "exchange_time", "received_at", "last", "bid", "ask", "bid_size", "ask_size", "volume_24h", "request_id", "sequence")
    TICKER_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BID_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    BID_SIZE_FIELD_NUMBER: _ClassVar[int]
    ASK_SIZE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_24H_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ticker: str
    exchange_time: int
    received_at: int
    last: float
    bid: float
    ask: float
    bid_size: float
    ask_size: float
    volume_24h: float
    request_id: str
    sequence: int
    def __init__(self, ticker: _Optional[str] = ..., exchange_time: _Optional[int] = ..., received_at: _Optional[int] = ..., last: _Optional[float] = ..., bid: _Optional[float] = ..., ask: _Optional[float] = ..., bid_size: _Optional[float] = ..., ask_size: _Optional[float] = ..., volume_24h: _Optional[float] = ..., request_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class TriggerQuery(_message.Message):
    __slots__ = ("trigger_id", "after_trigger_id", "include_starting")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STARTING_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    after_trigger_id: str
    include_starting: bool
    def __init__(self, trigger_id: _Optional[str] = ..., after_trigger_id: _Optional[str] = ..., include_starting: bool = ...) -> None: ...

class TriggerInfo(_message.Message):
    __slots__ = ("trigger_id", "sql_pattern", "tickers", "state", "reason", "registered_at", "events", "is_starting", "parameters", "partitions", "kept_bytes", "steps", "views", "waiting_rows", "behind_ns", "row_ns")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    SQL_PATTERN_FIELD_NUMBER: _ClassVar[int]
    TICKERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    IS_STARTING_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    WAITING_ROWS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_NS_FIELD_NUMBER: _ClassVar[int]
    ROW_NS_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    sql_pattern: str
    tickers: _containers.RepeatedScalarFieldContainer[str]
    state: str
    reason: str
    registered_at: int
    events: int
    is_starting: bool
    parameters: _containers.ScalarMap[str, str]
    partitions: int
    kept_bytes: int
    steps: int
    views: _containers.RepeatedScalarFieldContainer[str]
    waiting_rows: int
    behind_ns: int
    row_ns: int
    def __init__(self, trigger_id: _Optional[str] = ..., sql_pattern: _Optional[str] = ..., tickers: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., registered_at: _Optional[int] = ..., events: _Optional[int] = ..., is_starting: bool = ..., parameters: _Optional[_Mapping[str, str]] = ..., partitions: _Optional[int] = ..., kept_bytes: _Optional[int] = ..., steps: _Optional[int] = ..., views: _Optional[_Iterable[str]] = ..., waiting_rows: _Optional[int] = ..., behind_ns: _Optional[int] = ..., row_ns: _Optional[int] = ...) -> None: ...

class TriggerList(_message.Message):
    __slots__ = ("triggers", "has_more")
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    triggers: _containers.RepeatedCompositeFieldContainer[TriggerInfo]
    has_more: bool
    def __init__(self, triggers: _Optional[_Iterable[_Union[TriggerInfo, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class TriggerRemove(_message.Message):
    __slots__ = ("trigger_id",)
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    def __init__(self, trigger_id: _Optional[str] = ...) -> None: ...

class ViewRequest(_message.Message):
    __slots__ = ("request_id", "name", "sql", "replace")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    sql: str
    replace: bool
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., sql: _Optional[str] = ..., replace: bool = ...) -> None: ...

class ViewRemove(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ViewAck(_message.Message):
    __slots__ = ("request_id", "name", "status", "text", "version", "warnings", "restarted")
    class ViewStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REGISTERED: _ClassVar[ViewAck.ViewStatus]
        ALREADY_REGISTERED: _ClassVar[ViewAck.ViewStatus]
        REMOVED: _ClassVar[ViewAck.ViewStatus]
        INVALID_SQL: _ClassVar[ViewAck.ViewStatus]
        IN_USE: _ClassVar[ViewAck.ViewStatus]
        NOT_FOUND: _ClassVar[ViewAck.ViewStatus]
        ERROR: _ClassVar[ViewAck.ViewStatus]
    REGISTERED: ViewAck.ViewStatus
    ALREADY_REGISTERED: ViewAck.ViewStatus
    REMOVED: ViewAck.ViewStatus
    INVALID_SQL: ViewAck.ViewStatus
    IN_USE: ViewAck.ViewStatus
    NOT_FOUND: ViewAck.ViewStatus
    ERROR: ViewAck.ViewStatus
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    status: ViewAck.ViewStatus
    text: str
    version: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    restarted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[_Union[ViewAck.ViewStatus, str]] = ..., text: _Optional[str] = ..., version: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., restarted: _Optional[_Iterable[str]] = ...) -> None: ...

class ViewQuery(_message.Message):
    __slots__ = ("request_id", "name", "built_in")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUILT_IN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    built_in: bool
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., built_in: bool = ...) -> None: ...

class ViewInfo(_message.Message):
    __slots__ = ("name", "sql", "version", "registered_at", "columns", "column_types", "reads", "read_by", "triggers", "trigger_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    READ_BY_FIELD_NUMBER: _ClassVar[int]
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    sql: str
    version: int
    registered_at: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    reads: _containers.RepeatedScalarFieldContainer[str]
    read_by: _containers.RepeatedScalarFieldContainer[str]
    triggers: _containers.RepeatedScalarFieldContainer[str]
    trigger_count: int
    def __init__(self, name: _Optional[str] = ..., sql: _Optional[str] = ..., version: _Optional[int] = ..., registered_at: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., reads: _Optional[_Iterable[str]] = ..., read_by: _Optional[_Iterable[str]] = ..., triggers: _Optional[_Iterable[str]] = ..., trigger_count: _Optional[int] = ...) -> None: ...

class ViewList(_message.Message):
    __slots__ = ("request_id", "views")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    views: _containers.RepeatedCompositeFieldContainer[ViewInfo]
    def __init__(self, request_id: _Optional[str] = ..., views: _Optional[_Iterable[_Union[ViewInfo, _Mapping]]] = ...) -> None: ...

class RefreshHistoricalRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: _ingestor_pb2.SubmitHistoricalRequest
    def __init__(self, request: _Optional[_Union[_ingestor_pb2.SubmitHistoricalRequest, _Mapping]] = ...) -> None: ...

class RequestStateQuery(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class RequestState(_message.Message):
    __slots__ = ("request_id", "state", "done_candles", "expected_candles", "notification", "closed_until", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DONE_CANDLES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_CANDLES_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    CLOSED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    state: str
    done_candles: int
    expected_candles: int
    notification: _ingestor_pb2.HistoryReadyNotification
    closed_until: int
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., state: _Optional[str] = ..., done_candles: _Optional[int] = ..., expected_candles: _Optional[int] = ..., notification: _Optional[_Union[_ingestor_pb2.HistoryReadyNotification, _Mapping]] = ..., closed_until: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TopicReplay(_message.Message):
    __slots__ = ("topic", "from_sequence", "to_sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TO_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    from_sequence: int
    to_sequence: int
    def __init__(self, topic: _Optional[str] = ..., from_sequence: _Optional[int] = ..., to_sequence: _Optional[int] = ...) -> None: ...

class TopicRecord(_message.Message):
    __slots__ = ("topic", "sequence", "body", "is_final", "published_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    sequence: int
    body: bytes
    is_final: bool
    published_at: int
    def __init__(self, topic: _Optional[str] = ..., sequence: _Optional[int] = ..., body: _Optional[bytes] = ..., is_final: bool = ..., published_at: _Optional[int] = ...) -> None: ...

class VenueQuery(_message.Message):
    __slots__ = ("request_id", "venue")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VENUE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    venue: str
    def __init__(self, request_id: _Optional[str] = ..., venue: _Optional[str] = ...) -> None: ...

class Market(_message.Message):
    __slots__ = ("symbol", "market_id", "active", "base_id", "quote_id")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    MARKET_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    BASE_ID_FIELD_NUMBER: _ClassVar[int]
    QUOTE_ID_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    market_id: str
    active: bool
    base_id: str
    quote_id: str
    def __init__(self, symbol: _Optional[str] = ..., market_id: _Optional[str] = ..., active: bool = ..., base_id: _Optional[str] = ..., quote_id: _Optional[str] = ...) -> None: ...

class Venue(_message.Message):
    __slots__ = ("venue", "period_seconds", "markets", "updated_at", "max_candles_per_request", "depth_candles", "market_count", "is_live")
    VENUE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MARKETS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_CANDLES_PER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    DEPTH_CANDLES_FIELD_NUMBER: _ClassVar[int]
    MARKET_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    venue: str
    period_seconds: _containers.RepeatedScalarFieldContainer[int]
    markets: _containers.RepeatedCompositeFieldContainer[Market]
    updated_at: int
    max_candles_per_request: int
    depth_candles: int
    market_count: int
    is_live: bool
    def __init__(self, venue: _Optional[str] = ..., period_seconds: _Optional[_Iterable[int]] = ..., markets: _Optional[_Iterable[_Union[Market, _Mapping]]] = ..., updated_at: _Optional[int] = ..., max_candles_per_request: _Optional[int] = ..., depth_candles: _Optional[int] = ..., market_count: _Optional[int] = ..., is_live: bool = ...) -> None: ...

class VenueList(_message.Message):
    __slots__ = ("request_id", "venues")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VENUES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    venues: _containers.RepeatedCompositeFieldContainer[Venue]
    def __init__(self, request_id: _Optional[str] = ..., venues: _Optional[_Iterable[_Union[Venue, _Mapping]]] = ...) -> None: ...

class StoredQuery(_message.Message):
    __slots__ = ("request_id", "ticker", "period_seconds", "start_time", "end_time", "limit", "as_of", "covered_by")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    COVERED_BY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    period_seconds: int
    start_time: int
    end_time: int
    limit: int
    as_of: int
    covered_by: str
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., limit: _Optional[int] = ..., as_of: _Optional[int] = ..., covered_by: _Optional[str] = ...) -> None: ...

class StoredRows(_message.Message):
    __slots__ = ("request_id", "rows", "next_start", "holes", "closed_until")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    CLOSED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rows: bytes
    next_start: int
    holes: _containers.RepeatedCompositeFieldContainer[TimeRange]
    closed_until: int
    def __init__(self, request_id: _Optional[str] = ..., rows: _Optional[bytes] = ..., next_start: _Optional[int] = ..., holes: _Optional[_Iterable[_Union[TimeRange, _Mapping]]] = ..., closed_until: _Optional[int] = ...) -> None: ...

class HistoryEnd(_message.Message):
    __slots__ = ("job_id", "partition", "spans", "rows", "expected", "holes", "exchange_time", "first_open_time", "last_open_time", "reason", "closed_until")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    FIRST_OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLOSED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    partition: int
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    rows: int
    expected: int
    holes: _containers.RepeatedCompositeFieldContainer[TimeRange]
    exchange_time: int
    first_open_time: int
    last_open_time: int
    reason: str
    closed_until: int
    def __init__(self, job_id: _Optional[str] = ..., partition: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., rows: _Optional[int] = ..., expected: _Optional[int] = ..., holes: _Optional[_Iterable[_Union[TimeRange, _Mapping]]] = ..., exchange_time: _Optional[int] = ..., first_open_time: _Optional[int] = ..., last_open_time: _Optional[int] = ..., reason: _Optional[str] = ..., closed_until: _Optional[int] = ...) -> None: ...

class WorkProgress(_message.Message):
    __slots__ = ("job_id", "done_candles")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_CANDLES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    done_candles: int
    def __init__(self, job_id: _Optional[str] = ..., done_candles: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("first_offset", "last_offset")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    last_offset: int
    def __init__(self, first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...

class TimeRange(_message.Message):
    __slots__ = ("start_time", "end_time")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    start_time: int
    end_time: int
    def __init__(self, start_time: _Optional[int] = ..., end_time: _Optional[int] = ...) -> None: ...
