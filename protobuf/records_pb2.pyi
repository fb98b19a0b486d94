from candlewright.wire import candlewright_pb2 as _candlewright_pb2
from candlewright.wire import ingestor_pb2 as _ingestor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("historical", "data", "control", "accepted_at", "deadline", "owner", "refresh", "sender", "connection")
    HISTORICAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REFRESH_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    historical: _ingestor_pb2.SubmitHistoricalRequest
    data: _ingestor_pb2.DataRequest
    control: _ingestor_pb2.IngestorControl
    accepted_at: int
    deadline: int
    owner: str
    refresh: bool
    sender: str
    connection: str
    def __init__(self, historical: _Optional[_Union[_ingestor_pb2.SubmitHistoricalRequest, _Mapping]] = ..., data: _Optional[_Union[_ingestor_pb2.DataRequest, _Mapping]] = ..., control: _Optional[_Union[_ingestor_pb2.IngestorControl, _Mapping]] = ..., accepted_at: _Optional[int] = ..., deadline: _Optional[int] = ..., owner: _Optional[str] = ..., refresh: bool = ..., sender: _Optional[str] = ..., connection: _Optional[str] = ...) -> None: ...

class HistoryPage(_message.Message):
    __slots__ = ("request_id", "job_id", "ticker", "period_seconds", "source", "open_time", "open", "high", "low", "close", "volume", "quote_volume", "trade_count")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    QUOTE_VOLUME_FIELD_NUMBER: _ClassVar[int]
    TRADE_COUNT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    job_id: str
    ticker: str
    period_seconds: int
    source: str
    open_time: _containers.RepeatedScalarFieldContainer[int]
    open: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    low: _containers.RepeatedScalarFieldContainer[float]
    close: _containers.RepeatedScalarFieldContainer[float]
    volume: _containers.RepeatedScalarFieldContainer[float]
    quote_volume: _containers.RepeatedScalarFieldContainer[float]
    trade_count: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., job_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., source: _Optional[str] = ..., open_time: _Optional[_Iterable[int]] = ..., open: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ..., low: _Optional[_Iterable[float]] = ..., close: _Optional[_Iterable[float]] = ..., volume: _Optional[_Iterable[float]] = ..., quote_volume: _Optional[_Iterable[float]] = ..., trade_count: _Optional[_Iterable[int]] = ...) -> None: ...

class QuietRanges(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.TimeRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[_candlewright_pb2.TimeRange, _Mapping]]] = ...) -> None: ...

class HistoryOutcome(_message.Message):
    __slots__ = ("piece", "request")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    piece: PieceDone
    request: RequestDone
    def __init__(self, piece: _Optional[_Union[PieceDone, _Mapping]] = ..., request: _Optional[_Union[RequestDone, _Mapping]] = ...) -> None: ...

class PieceDone(_message.Message):
    __slots__ = ("request_id", "piece", "job_id", "ticker", "period_seconds", "start_time", "end_time", "partition", "spans", "rows", "expected", "holes", "reason", "is_proven")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_PROVEN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    piece: int
    job_id: str
    ticker: str
    period_seconds: int
    start_time: int
    end_time: int
    partition: int
    spans: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.Span]
    rows: int
    expected: int
    holes: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.TimeRange]
    reason: str
    is_proven: bool
    def __init__(self, request_id: _Optional[str] = ..., piece: _Optional[int] = ..., job_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., partition: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[_candlewright_pb2.Span, _Mapping]]] = ..., rows: _Optional[int] = ..., expected: _Optional[int] = ..., holes: _Optional[_Iterable[_Union[_candlewright_pb2.TimeRange, _Mapping]]] = ..., reason: _Optional[str] = ..., is_proven: bool = ...) -> None: ...

class ProofQuestion(_message.Message):
    __slots__ = ("request_id", "ticker", "period_seconds", "ranges", "limit", "deadline")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    period_seconds: int
    ranges: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.TimeRange]
    limit: int
    deadline: int
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_candlewright_pb2.TimeRange, _Mapping]]] = ..., limit: _Optional[int] = ..., deadline: _Optional[int] = ...) -> None: ...

class Proof(_message.Message):
    __slots__ = ("request_id", "ranges")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ranges: _containers.RepeatedCompositeFieldContainer[ProvenRange]
    def __init__(self, request_id: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[ProvenRange, _Mapping]]] = ...) -> None: ...

class ProvenRange(_message.Message):
    __slots__ = ("start_time", "end_time", "rows", "expected", "holes")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    start_time: int
    end_time: int
    rows: int
    expected: int
    holes: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.TimeRange]
    def __init__(self, start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., rows: _Optional[int] = ..., expected: _Optional[int] = ..., holes: _Optional[_Iterable[_Union[_candlewright_pb2.TimeRange, _Mapping]]] = ...) -> None: ...

class RequestDone(_message.Message):
    __slots__ = ("request_id", "ticker", "period_seconds", "start_time", "end_time", "status", "error_message", "rows", "expected", "holes", "client_id", "closed_until")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLOSED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    period_seconds: int
    start_time: int
    end_time: int
    status: _ingestor_pb2.HistoryReadyNotification.NotificationStatus
    error_message: str
    rows: int
    expected: int
    holes: _containers.RepeatedCompositeFieldContainer[_candlewright_pb2.TimeRange]
    client_id: str
    closed_until: int
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., status: _Optional[_Union[_ingestor_pb2.HistoryReadyNotification.NotificationStatus, str]] = ..., error_message: _Optional[str] = ..., rows: _Optional[int] = ..., expected: _Optional[int] = ..., holes: _Optional[_Iterable[_Union[_candlewright_pb2.TimeRange, _Mapping]]] = ..., client_id: _Optional[str] = ..., closed_until: _Optional[int] = ...) -> None: ...

class TickMark(_message.Message):
    __slots__ = ("ticker", "wanted", "covered", "clock", "gap", "seed", "after_sequence", "exchange_ahead")
    TICKER_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ticker: str
    wanted: Wanted
    covered: Covered
    clock: Clock
    gap: Gap
    seed: Seed
    after_sequence: int
    exchange_ahead: int
    def __init__(self, ticker: _Optional[str] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ..., covered: _Optional[_Union[Covered, _Mapping]] = ..., clock: _Optional[_Union[Clock, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ..., seed: _Optional[_Union[Seed, _Mapping]] = ..., after_sequence: _Optional[int] = ..., exchange_ahead: _Optional[int] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("ticks", "period_seconds")
    TICKS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ticks: bool
    period_seconds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ticks: bool = ..., period_seconds: _Optional[_Iterable[int]] = ...) -> None: ...

class Covered(_message.Message):
    __slots__ = ("job_id", "from_time")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    from_time: int
    def __init__(self, job_id: _Optional[str] = ..., from_time: _Optional[int] = ...) -> None: ...

class Clock(_message.Message):
    __slots__ = ("exchange_time", "sequence")
    EXCHANGE_TIME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    exchange_time: int
    sequence: int
    def __init__(self, exchange_time: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("gap_id", "from_trade_id", "to_trade_id", "from_time", "to_time", "missing", "is_repaired", "reason", "detected_at")
    GAP_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    TO_TIME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    IS_REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETECTED_AT_FIELD_NUMBER: _ClassVar[int]
    gap_id: str
    from_trade_id: str
    to_trade_id: str
    from_time: int
    to_time: int
    missing: int
    is_repaired: bool
    reason: str
    detected_at: int
    def __init__(self, gap_id: _Optional[str] = ..., from_trade_id: _Optional[str] = ..., to_trade_id: _Optional[str] = ..., from_time: _Optional[int] = ..., to_time: _Optional[int] = ..., missing: _Optional[int] = ..., is_repaired: bool = ..., reason: _Optional[str] = ..., detected_at: _Optional[int] = ...) -> None: ...

class Seed(_message.Message):
    __slots__ = ("period_seconds", "open_time", "open", "high", "low", "close", "volume", "quote_volume", "trade_count", "first_trade_id", "last_trade_id")
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_TIME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    QUOTE_VOLUME_FIELD_NUMBER: _ClassVar[int]
    TRADE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    period_seconds: int
    open_time: _containers.RepeatedScalarFieldContainer[int]
    open: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    low: _containers.RepeatedScalarFieldContainer[float]
    close: _containers.RepeatedScalarFieldContainer[float]
    volume: _containers.RepeatedScalarFieldContainer[float]
    quote_volume: _containers.RepeatedScalarFieldContainer[float]
    trade_count: _containers.RepeatedScalarFieldContainer[int]
    first_trade_id: _containers.RepeatedScalarFieldContainer[int]
    last_trade_id: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, period_seconds: _Optional[int] = ..., open_time: _Optional[_Iterable[int]] = ..., open: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ..., low: _Optional[_Iterable[float]] = ..., close: _Optional[_Iterable[float]] = ..., volume: _Optional[_Iterable[float]] = ..., quote_volume: _Optional[_Iterable[float]] = ..., trade_count: _Optional[_Iterable[int]] = ..., first_trade_id: _Optional[_Iterable[int]] = ..., last_trade_id: _Optional[_Iterable[int]] = ...) -> None: ...

class TriggerControl(_message.Message):
    __slots__ = ("register", "remove")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    register: TriggerRegistration
    remove: _candlewright_pb2.TriggerRemove
    def __init__(self, register: _Optional[_Union[TriggerRegistration, _Mapping]] = ..., remove: _Optional[_Union[_candlewright_pb2.TriggerRemove, _Mapping]] = ...) -> None: ...

class TriggerRegistration(_message.Message):
    __slots__ = ("trigger_id", "sql", "tickers", "parameters", "callback_id", "registered_at", "version", "views")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ViewsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    TICKERS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    CALLBACK_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    sql: str
    tickers: _containers.RepeatedScalarFieldContainer[str]
    parameters: _containers.ScalarMap[str, str]
    callback_id: str
    registered_at: int
    version: int
    views: _containers.ScalarMap[str, str]
    def __init__(self, trigger_id: _Optional[str] = ..., sql: _Optional[str] = ..., tickers: _Optional[_Iterable[str]] = ..., parameters: _Optional[_Mapping[str, str]] = ..., callback_id: _Optional[str] = ..., registered_at: _Optional[int] = ..., version: _Optional[int] = ..., views: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ViewEntry(_message.Message):
    __slots__ = ("name", "sql", "version", "registered_at", "columns", "column_types", "reads")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    name: str
    sql: str
    version: int
    registered_at: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    reads: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sql: _Optional[str] = ..., version: _Optional[int] = ..., registered_at: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., reads: _Optional[_Iterable[str]] = ...) -> None: ...

class TriggerProgress(_message.Message):
    __slots__ = ("partition", "controls_end", "suspended")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_END_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    partition: int
    controls_end: int
    suspended: _containers.RepeatedCompositeFieldContainer[TriggerSuspended]
    def __init__(self, partition: _Optional[int] = ..., controls_end: _Optional[int] = ..., suspended: _Optional[_Iterable[_Union[TriggerSuspended, _Mapping]]] = ...) -> None: ...

class TriggerSuspended(_message.Message):
    __slots__ = ("trigger_id", "version", "reason")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    version: int
    reason: str
    def __init__(self, trigger_id: _Optional[str] = ..., version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class FunctionRows(_message.Message):
    __slots__ = ("trigger_id", "version", "parameters", "frames", "query_id")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    version: int
    parameters: _containers.ScalarMap[str, str]
    frames: bytes
    query_id: str
    def __init__(self, trigger_id: _Optional[str] = ..., version: _Optional[int] = ..., parameters: _Optional[_Mapping[str, str]] = ..., frames: _Optional[bytes] = ..., query_id: _Optional[str] = ...) -> None: ...

class TriggerEntry(_message.Message):
    __slots__ = ("registration", "is_leaving", "control_offset", "suspended_reason", "warnings", "bar_seconds", "joined_seconds", "sources")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    CONTROL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_REASON_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    BAR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    JOINED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    registration: TriggerRegistration
    is_leaving: bool
    control_offset: int
    suspended_reason: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    bar_seconds: int
    joined_seconds: _containers.RepeatedScalarFieldContainer[int]
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, registration: _Optional[_Union[TriggerRegistration, _Mapping]] = ..., is_leaving: bool = ..., control_offset: _Optional[int] = ..., suspended_reason: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., bar_seconds: _Optional[int] = ..., joined_seconds: _Optional[_Iterable[int]] = ..., sources: _Optional[_Iterable[str]] = ...) -> None: ...

class TriggerCosts(_message.Message):
    __slots__ = ("costs",)
    COSTS_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.RepeatedCompositeFieldContainer[TriggerCost]
    def __init__(self, costs: _Optional[_Iterable[_Union[TriggerCost, _Mapping]]] = ...) -> None: ...

class TriggerCost(_message.Message):
    __slots__ = ("trigger_id", "partitions", "state_bytes", "steps", "waiting_rows", "behind_ns", "row_ns")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WAITING_ROWS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_NS_FIELD_NUMBER: _ClassVar[int]
    ROW_NS_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    partitions: int
    state_bytes: int
    steps: int
    waiting_rows: int
    behind_ns: int
    row_ns: int
    def __init__(self, trigger_id: _Optional[str] = ..., partitions: _Optional[int] = ..., state_bytes: _Optional[int] = ..., steps: _Optional[int] = ..., waiting_rows: _Optional[int] = ..., behind_ns: _Optional[int] = ..., row_ns: _Optional[int] = ...) -> None: ...

class NumaflowChunk(_message.Message):
    __slots__ = ("number", "results")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    results: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, number: _Optional[int] = ..., results: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ServedVenues(_message.Message):
    __slots__ = ("historical", "realtime")
    HISTORICAL_FIELD_NUMBER: _ClassVar[int]
    REALTIME_FIELD_NUMBER: _ClassVar[int]
    historical: _containers.RepeatedScalarFieldContainer[str]
    realtime: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, historical: _Optional[_Iterable[str]] = ..., realtime: _Optional[_Iterable[str]] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("part", "topic", "partition", "offset", "reason", "at", "record", "key", "record_bytes", "number", "kind")
    PART_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RECORD_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    part: str
    topic: str
    partition: int
    offset: int
    reason: str
    at: int
    record: bytes
    key: bytes
    record_bytes: int
    number: int
    kind: str
    def __init__(self, part: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., reason: _Optional[str] = ..., at: _Optional[int] = ..., record: _Optional[bytes] = ..., key: _Optional[bytes] = ..., record_bytes: _Optional[int] = ..., number: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...
