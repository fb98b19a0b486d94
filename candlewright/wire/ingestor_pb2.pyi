from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlotType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANY: _ClassVar[SlotType]
    HISTORICAL: _ClassVar[SlotType]
    REALTIME: _ClassVar[SlotType]
ANY: SlotType
HISTORICAL: SlotType
REALTIME: SlotType

class DataRequest(_message.Message):
    __slots__ = ("request_id", "type", "ticker", "historical", "realtime", "client_id", "job_id")
    class RequestType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HISTORICAL_OHLC: _ClassVar[DataRequest.RequestType]
        REALTIME_TICKS: _ClassVar[DataRequest.RequestType]
        TICKER_SNAPSHOT: _ClassVar[DataRequest.RequestType]
    HISTORICAL_OHLC: DataRequest.RequestType
    REALTIME_TICKS: DataRequest.RequestType
    TICKER_SNAPSHOT: DataRequest.RequestType
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    HISTORICAL_FIELD_NUMBER: _ClassVar[int]
    REALTIME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    type: DataRequest.RequestType
    ticker: str
    historical: HistoricalParams
    realtime: RealtimeParams
    client_id: str
    job_id: str
    def __init__(self, request_id: _Optional[str] = ..., type: _Optional[_Union[DataRequest.RequestType, str]] = ..., ticker: _Optional[str] = ..., historical: _Optional[_Union[HistoricalParams, _Mapping]] = ..., realtime: _Optional[_Union[RealtimeParams, _Mapping]] = ..., client_id: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...

class HistoricalParams(_message.Message):
    __slots__ = ("start_time", "end_time", "period_seconds", "limit")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    start_time: int
    end_time: int
    period_seconds: int
    limit: int
    def __init__(self, start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., period_seconds: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class RealtimeParams(_message.Message):
    __slots__ = ("include_ticks", "include_ohlc", "ohlc_period_seconds")
    INCLUDE_TICKS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_OHLC_FIELD_NUMBER: _ClassVar[int]
    OHLC_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    include_ticks: bool
    include_ohlc: bool
    ohlc_period_seconds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, include_ticks: bool = ..., include_ohlc: bool = ..., ohlc_period_seconds: _Optional[_Iterable[int]] = ...) -> None: ...

class IngestorControl(_message.Message):
    __slots__ = ("action", "request_id", "config")
    class ControlAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CANCEL: _ClassVar[IngestorControl.ControlAction]
        SHUTDOWN: _ClassVar[IngestorControl.ControlAction]
        CONFIG_UPDATE: _ClassVar[IngestorControl.ControlAction]
        HEARTBEAT: _ClassVar[IngestorControl.ControlAction]
    CANCEL: IngestorControl.ControlAction
    SHUTDOWN: IngestorControl.ControlAction
    CONFIG_UPDATE: IngestorControl.ControlAction
    HEARTBEAT: IngestorControl.ControlAction
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    action: IngestorControl.ControlAction
    request_id: str
    config: IngestorConfig
    def __init__(self, action: _Optional[_Union[IngestorControl.ControlAction, str]] = ..., request_id: _Optional[str] = ..., config: _Optional[_Union[IngestorConfig, _Mapping]] = ...) -> None: ...

class IngestorConfig(_message.Message):
    __slots__ = ("max_concurrent", "timeout_seconds", "kafka_topic")
    MAX_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_TOPIC_FIELD_NUMBER: _ClassVar[int]
    max_concurrent: int
    timeout_seconds: int
    kafka_topic: str
    def __init__(self, max_concurrent: _Optional[int] = ..., timeout_seconds: _Optional[int] = ..., kafka_topic: _Optional[str] = ...) -> None: ...

class DataResponse(_message.Message):
    __slots__ = ("request_id", "status", "error_message", "ohlc_data", "total_records")
    class ResponseStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OK: _ClassVar[DataResponse.ResponseStatus]
        NOT_FOUND: _ClassVar[DataResponse.ResponseStatus]
        ERROR: _ClassVar[DataResponse.ResponseStatus]
    OK: DataResponse.ResponseStatus
    NOT_FOUND: DataResponse.ResponseStatus
    ERROR: DataResponse.ResponseStatus
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OHLC_DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RECORDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    status: DataResponse.ResponseStatus
    error_message: str
    ohlc_data: _containers.RepeatedScalarFieldContainer[bytes]
    total_records: int
    def __init__(self, request_id: _Optional[str] = ..., status: _Optional[_Union[DataResponse.ResponseStatus, str]] = ..., error_message: _Optional[str] = ..., ohlc_data: _Optional[_Iterable[bytes]] = ..., total_records: _Optional[int] = ...) -> None: ...

class SubmitHistoricalRequest(_message.Message):
    __slots__ = ("request_id", "ticker", "start_time", "end_time", "period_seconds", "limit", "client_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    start_time: int
    end_time: int
    period_seconds: int
    limit: int
    client_id: str
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., period_seconds: _Optional[int] = ..., limit: _Optional[int] = ..., client_id: _Optional[str] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("request_id", "status", "error_message", "notification_topic")
    class SubmitStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        QUEUED: _ClassVar[SubmitResponse.SubmitStatus]
        DUPLICATE: _ClassVar[SubmitResponse.SubmitStatus]
        INVALID: _ClassVar[SubmitResponse.SubmitStatus]
        ERROR: _ClassVar[SubmitResponse.SubmitStatus]
    QUEUED: SubmitResponse.SubmitStatus
    DUPLICATE: SubmitResponse.SubmitStatus
    INVALID: SubmitResponse.SubmitStatus
    ERROR: SubmitResponse.SubmitStatus
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_TOPIC_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    status: SubmitResponse.SubmitStatus
    error_message: str
    notification_topic: str
    def __init__(self, request_id: _Optional[str] = ..., status: _Optional[_Union[SubmitResponse.SubmitStatus, str]] = ..., error_message: _Optional[str] = ..., notification_topic: _Optional[str] = ...) -> None: ...

class HistoryReadyNotification(_message.Message):
    __slots__ = ("request_id", "ticker", "period_seconds", "start_time", "end_time", "status", "error_message", "iceberg_namespace", "iceberg_table", "row_count", "completed_at")
    class NotificationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OK: _ClassVar[HistoryReadyNotification.NotificationStatus]
        NOT_FOUND: _ClassVar[HistoryReadyNotification.NotificationStatus]
        ERROR: _ClassVar[HistoryReadyNotification.NotificationStatus]
        TIMEOUT: _ClassVar[HistoryReadyNotification.NotificationStatus]
    OK: HistoryReadyNotification.NotificationStatus
    NOT_FOUND: HistoryReadyNotification.NotificationStatus
    ERROR: HistoryReadyNotification.NotificationStatus
    TIMEOUT: HistoryReadyNotification.NotificationStatus
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ICEBERG_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ICEBERG_TABLE_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    period_seconds: int
    start_time: int
    end_time: int
    status: HistoryReadyNotification.NotificationStatus
    error_message: str
    iceberg_namespace: str
    iceberg_table: str
    row_count: int
    completed_at: int
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., period_seconds: _Optional[int] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., status: _Optional[_Union[HistoryReadyNotification.NotificationStatus, str]] = ..., error_message: _Optional[str] = ..., iceberg_namespace: _Optional[str] = ..., iceberg_table: _Optional[str] = ..., row_count: _Optional[int] = ..., completed_at: _Optional[int] = ...) -> None: ...

class OHLCRequest(_message.Message):
    __slots__ = ("request_id", "ticker", "start_time", "end_time", "period_seconds", "limit")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TICKER_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ticker: str
    start_time: int
    end_time: int
    period_seconds: int
    limit: int
    def __init__(self, request_id: _Optional[str] = ..., ticker: _Optional[str] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., period_seconds: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("request_id", "status", "error_message", "data", "total_records", "is_final")
    class ResponseStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OK: _ClassVar[Response.ResponseStatus]
        NOT_FOUND: _ClassVar[Response.ResponseStatus]
        ERROR: _ClassVar[Response.ResponseStatus]
    OK: Response.ResponseStatus
    NOT_FOUND: Response.ResponseStatus
    ERROR: Response.ResponseStatus
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    status: Response.ResponseStatus
    error_message: str
    data: _containers.RepeatedScalarFieldContainer[bytes]
    total_records: int
    is_final: bool
    def __init__(self, request_id: _Optional[str] = ..., status: _Optional[_Union[Response.ResponseStatus, str]] = ..., error_message: _Optional[str] = ..., data: _Optional[_Iterable[bytes]] = ..., total_records: _Optional[int] = ..., is_final: bool = ...) -> None: ...

class CEPTriggerRequest(_message.Message):
    __slots__ = ("trigger_id", "sql_pattern", "tickers", "callback_id", "parameters")
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
    CALLBACK_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    sql_pattern: str
    tickers: _containers.RepeatedScalarFieldContainer[str]
    callback_id: str
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, trigger_id: _Optional[str] = ..., sql_pattern: _Optional[str] = ..., tickers: _Optional[_Iterable[str]] = ..., callback_id: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CEPTriggerAck(_message.Message):
    __slots__ = ("trigger_id", "status", "error_message")
    class TriggerStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REGISTERED: _ClassVar[CEPTriggerAck.TriggerStatus]
        ALREADY_REGISTERED: _ClassVar[CEPTriggerAck.TriggerStatus]
        INVALID_SQL: _ClassVar[CEPTriggerAck.TriggerStatus]
        ERROR: _ClassVar[CEPTriggerAck.TriggerStatus]
    REGISTERED: CEPTriggerAck.TriggerStatus
    ALREADY_REGISTERED: CEPTriggerAck.TriggerStatus
    INVALID_SQL: CEPTriggerAck.TriggerStatus
    ERROR: CEPTriggerAck.TriggerStatus
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    status: CEPTriggerAck.TriggerStatus
    error_message: str
    def __init__(self, trigger_id: _Optional[str] = ..., status: _Optional[_Union[CEPTriggerAck.TriggerStatus, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class CEPTriggerEvent(_message.Message):
    __slots__ = ("trigger_id", "timestamp", "schema", "rows", "context")
    class ContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    timestamp: int
    schema: ResultSchema
    rows: _containers.RepeatedCompositeFieldContainer[ResultRow]
    context: _containers.ScalarMap[str, str]
    def __init__(self, trigger_id: _Optional[str] = ..., timestamp: _Optional[int] = ..., schema: _Optional[_Union[ResultSchema, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[ResultRow, _Mapping]]] = ..., context: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ResultSchema(_message.Message):
    __slots__ = ("column_names", "column_types")
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ...) -> None: ...

class ResultRow(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FieldValue(_message.Message):
    __slots__ = ("string_val", "int_val", "double_val", "bool_val", "bytes_val", "timestamp_val")
    STRING_VAL_FIELD_NUMBER: _ClassVar[int]
    INT_VAL_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VAL_FIELD_NUMBER: _ClassVar[int]
    BOOL_VAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_VAL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_VAL_FIELD_NUMBER: _ClassVar[int]
    string_val: str
    int_val: int
    double_val: float
    bool_val: bool
    bytes_val: bytes
    timestamp_val: int
    def __init__(self, string_val: _Optional[str] = ..., int_val: _Optional[int] = ..., double_val: _Optional[float] = ..., bool_val: bool = ..., bytes_val: _Optional[bytes] = ..., timestamp_val: _Optional[int] = ...) -> None: ...

class WorkerReady(_message.Message):
    __slots__ = ("exchanges", "job_type")
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedScalarFieldContainer[str]
    job_type: SlotType
    def __init__(self, exchanges: _Optional[_Iterable[str]] = ..., job_type: _Optional[_Union[SlotType, str]] = ...) -> None: ...

class WorkComplete(_message.Message):
    __slots__ = ("job_id", "success", "error_message")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    success: bool
    error_message: str
    def __init__(self, job_id: _Optional[str] = ..., success: bool = ..., error_message: _Optional[str] = ...) -> None: ...

class WorkHeartbeat(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class WorkReject(_message.Message):
    __slots__ = ("job_id", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WorkStop(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...
