"""Settings of the gateways: other systems' protocols over the same bus."""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from candlewright.settings.binds import HostPort
from candlewright.settings.group import Group


class KafkaPixySettings(Group):
    #: Whether the gateway runs.
    enabled: bool = False
    #: Address of the gRPC service.
    bind: HostPort = "127.0.0.1:19091"
    #: The name that requests may use for this platform; they may also give none.
    cluster: str = "default"
    #: A message unacknowledged for this long is offered again.
    ack_timeout_seconds: float = Field(300.0, gt=0)
    #: How often it is offered again before it is dropped; -1: without limit.
    max_retries: int = Field(-1, ge=-1)
    #: Partitions of topics that clients create; 0: `bus.partitions`.
    partitions: int = Field(0, ge=0, le=1_024)
    #: How long a call that finds no message waits for one.
    long_polling_seconds: float = Field(3.0, gt=0)
    #: Calls of one group on one topic that may wait besides the first; further ones are refused.
    channel_buffer_size: int = Field(64, ge=1)
    #: Unacknowledged messages of one group and partition.
    max_pending_messages: int = Field(300, ge=1)
    #: How long a stop waits for asynchronous messages to be written.
    flush_seconds: float = Field(30.0, gt=0)


class RocketMQSettings(Group):
    #: Whether the gateway runs.
    enabled: bool = False
    #: Address of the gRPC service.
    bind: HostPort = "127.0.0.1:8081"
    #: The address (host:port) that clients are sent to; by default the one that they used.
    advertise: str = ""
    #: Whether the service uses TLS.
    tls: bool = True
    #: PEM file; by default a certificate made in the data directory.
    tls_cert: str = ""
    #: PEM file of its key.
    tls_key: str = ""
    #: Pauses after the first, second, … failure; the last one applies to all further failures.
    nack_delays_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 600.0, 1_200.0, 1_800.0)
    #: When a silent sender is first asked about its half message; twice as long for each further time, up to ten times.
    transaction_check_seconds: float = Field(6.0, gt=0)
    #: How often it is asked before the message goes to TRANS_CHECK_MAX_TIME_TOPIC.
    transaction_check_max: int = Field(15, ge=1)
    #: How long a receiving call that names no time waits for a message.
    poll_max_seconds: float = Field(20.0, gt=0)
    #: A client that sent no heartbeat for this long is forgotten.
    client_expiry_seconds: float = Field(120.0, gt=0)
    #: Secrets by key; empty: open to all.
    access_keys: Mapping[str, str] = {}
    #: Whether a missing topic is created by its first message or reader.
    create_topics: bool = True
    #: How long a message is hidden from other receivers, for receivers that specify nothing.
    invisible_seconds: float = Field(60.0, gt=0)
    #: How long a message id is remembered, so that a repeated send is not stored again; 0: not at all.
    deduplication_seconds: float = Field(0.0, ge=0)
    #: Longest delay of a timed message.
    max_delay_hours: float = Field(960.0, gt=0)
    #: Calls that may wait for messages at a time; further ones are refused.
    max_waiting_polls: int = Field(4_096, ge=1)


def _of_json(value: object) -> object:
    """A list or a map from the environment; other text as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{", '"'):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"this is not valid JSON: {value}") from error
    return value


class NumaflowSettings(Group):
    #: Whether the gateway runs.
    enabled: bool = False
    #: Unix socket of the source.
    socket: str = "/var/run/numaflow/source.sock"
    #: File in which Numaflow looks for the source's version.
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    #: One topic or several that the source reads.
    topic: Annotated[tuple[str, ...], NoDecode] = ("ticks",)
    #: The consumer group of the readers.
    group: str = Field("numaflow", min_length=1)
    #: Records unacknowledged for this long go to another replica.
    redeliver_seconds: float = Field(60.0, gt=0)
    #: Where a new group begins.
    start: Literal["beginning", "end"] = "beginning"
    #: The consumer's name in the group; by default from NUMAFLOW_POD or NUMAFLOW_REPLICA.
    replica: str = ""
    #: How long a stop waits for acknowledgements.
    grace_seconds: float = Field(5.0, ge=0)

    @property
    def consumer(self) -> str:
        """The name of this replica in the group."""
        return self.replica or os.environ.get("NUMAFLOW_POD") or f"replica-{os.environ.get('NUMAFLOW_REPLICA') or 0}"

    @field_validator("topic", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        value = _of_json(value)
        return (value,) if isinstance(value, str) else value

    @field_validator("topic")
    @classmethod
    def _some_and_different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not all(value) or len(set(value)) < len(value):
            raise ValueError("name a topic, or several different ones")
        return value


class KapacitorFunctionSettings(Group):
    """One of the operator's UDFs that triggers may use: a process (`prog`) or a server on a unix socket."""

    #: The program to start.
    prog: str = ""
    #: Its arguments.
    args: tuple[str, ...] = ()
    #: Its environment variables.
    env: Mapping[str, str] = {}
    #: Unix socket of a server, instead of a program.
    socket: str = ""
    #: How long the function may take for an answer.
    timeout_seconds: float = Field(10.0, gt=0)
    #: How long to wait after a batch for output that the function sends late, from its own threads.
    settle_seconds: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _one_way(self) -> "KapacitorFunctionSettings":
        if bool(self.prog) == bool(self.socket):
            raise ValueError("name either prog or socket")
        return self


class KapacitorSettings(Group):
    #: Where `candlewright kapacitor-udf` listens by default; empty: stdin and stdout.
    socket: str = ""
    #: How long it waits for its connections to end when it stops.
    timeout_seconds: float = Field(10.0, gt=0)
    udf: Mapping[str, KapacitorFunctionSettings] = {}


class GatewaysSettings(Group):
    kafka_pixy: KafkaPixySettings = KafkaPixySettings()
    rocketmq: RocketMQSettings = RocketMQSettings()
    numaflow: NumaflowSettings = NumaflowSettings()
    kapacitor: KapacitorSettings = KapacitorSettings()

    @property
    def is_any_enabled(self) -> bool:
        """Whether a gateway with its own server is enabled."""
        return self.kafka_pixy.enabled or self.rocketmq.enabled or self.numaflow.enabled


class NumaflowSourceSettings(Group):
    """A Numaflow source that is read into a topic."""

    #: Unix socket of the source.
    socket: str = "/var/run/numaflow/source.sock"
    #: File in which the source states its version.
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    #: The topic that it is read into.
    topic: str = Field(min_length=1)
    #: How payloads become records; empty: the payload is the record. For `ticks`, names of JSON fields by `ticker`,
    #: `price`, `size`, `side`, `ts`, `trade_id`.
    mapping: Mapping[str, str] = {}
    #: A payload that is not a record of the topic goes to `dead_letters`, or reading stops before it.
    unfit: Literal["dead_letter", "stop"] = "dead_letter"
    #: The topic of unfit payloads; by default NAME_dead_letters.
    dead_letters: str = ""
    #: Records of one read.
    max_records: int = Field(500, ge=1, le=10_000)
    #: How long one read waits for records.
    timeout_ms: int = Field(1_000, ge=0, le=60_000)

    @field_validator("mapping", mode="before")
    @classmethod
    def _decoded(cls, value: object) -> object:
        return _of_json(value)
