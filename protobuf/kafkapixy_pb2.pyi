from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ProdRq(_message.Message):
    __slots__ = ("cluster", "topic", "key_value", "key_undefined", "message", "async_mode")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_UNDEFINED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ASYNC_MODE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topic: str
    key_value: bytes
    key_undefined: bool
    message: bytes
    async_mode: bool
    def __init__(self, cluster: _Optional[str] = ..., topic: _Optional[str] = ..., key_value: _Optional[bytes] = ..., key_undefined: bool = ..., message: _Optional[bytes] = ..., async_mode: bool = ...) -> None: ...

class ProdRs(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ConsNAckRq(_message.Message):
    __slots__ = ("cluster", "topic", "group", "no_ack", "auto_ack", "ack_partition", "ack_offset")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NO_ACK_FIELD_NUMBER: _ClassVar[int]
    AUTO_ACK_FIELD_NUMBER: _ClassVar[int]
    ACK_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topic: str
    group: str
    no_ack: bool
    auto_ack: bool
    ack_partition: int
    ack_offset: int
    def __init__(self, cluster: _Optional[str] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., no_ack: bool = ..., auto_ack: bool = ..., ack_partition: _Optional[int] = ..., ack_offset: _Optional[int] = ...) -> None: ...

class ConsRs(_message.Message):
    __slots__ = ("partition", "offset", "key_value", "key_undefined", "message")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEY_VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_UNDEFINED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    key_value: bytes
    key_undefined: bool
    message: bytes
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., key_value: _Optional[bytes] = ..., key_undefined: bool = ..., message: _Optional[bytes] = ...) -> None: ...

class AckRq(_message.Message):
    __slots__ = ("cluster", "topic", "group", "partition", "offset")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topic: str
    group: str
    partition: int
    offset: int
    def __init__(self, cluster: _Optional[str] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class AckRs(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
