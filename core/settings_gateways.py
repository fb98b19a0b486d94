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
    """`cluster`: the name that requests may use for this platform, besides none; `partitions` of topics that clients
    create (0: as `bus.partitions`); `max_retries`: how often an unacknowledged message is offered again before
    it is dropped, -1 = without limit; `flush_seconds`: how long a stop waits for asynchronous messages to be written.
    """

    enabled: bool = False
    bind: HostPort = "127.0.0.1:19091"
    cluster: str = "default"
    ack_timeout_seconds: float = Field(300.0, gt=0)
    max_retries: int = Field(-1, ge=-1)
    partitions: int = Field(0, ge=0, le=1_024)
    long_polling_seconds: float = Field(3.0, gt=0)
    channel_buffer_size: int = Field(64, ge=1)
    max_pending_messages: int = Field(300, ge=1)
    flush_seconds: float = Field(30.0, gt=0)


class RocketMQSettings(Group):
    """`advertise`: the address (host:port) that clients are sent to, by default the one that they used;
    `tls_cert`, `tls_key`: PEM files, by default a certificate made in the data directory; `nack_delays_seconds`: after
    the first, second, … failure; the last one applies to all further ones; `transaction_check_seconds`: until a silent
    sender is
    asked, twice as long for each further time, up to ten times; `access_keys`: secrets by key, empty = open to all;
    `create_topics`: whether a missing topic is created by its first message or reader; `invisible_seconds`: for
    receivers that specify none; `deduplication_seconds`: how long a message id is remembered, so that a repeated send
    is not stored again, 0 = not at all.
    """

    enabled: bool = False
    bind: HostPort = "127.0.0.1:8081"
    advertise: str = ""
    tls: bool = True
    tls_cert: str = ""
    tls_key: str = ""
    nack_delays_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 600.0, 1_200.0, 1_800.0)
    transaction_check_seconds: float = Field(6.0, gt=0)
    transaction_check_max: int = Field(15, ge=1)
    poll_max_seconds: float = Field(20.0, gt=0)
    client_expiry_seconds: float = Field(120.0, gt=0)
    access_keys: Mapping[str, str] = {}
    create_topics: bool = True
    invisible_seconds: float = Field(60.0, gt=0)
    deduplication_seconds: float = Field(0.0, ge=0)
    max_delay_hours: float = Field(960.0, gt=0)
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
    """`topic`: one or a list; `redeliver_seconds`: records unacknowledged for this long go to another replica;
    `start`: where a new group begins; `replica`: the consumer's name in the group, by default of NUMAFLOW_POD or
    NUMAFLOW_REPLICA; `grace_seconds`: how long a stop waits for acknowledgements.
    """

    enabled: bool = False
    socket: str = "/var/run/numaflow/source.sock"
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    topic: Annotated[tuple[str, ...], NoDecode] = ("ticks",)
    group: str = Field("numaflow", min_length=1)
    redeliver_seconds: float = Field(60.0, gt=0)
    start: Literal["beginning", "end"] = "beginning"
    replica: str = ""
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

    prog: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    socket: str = ""
    timeout_seconds: float = Field(10.0, gt=0)
    settle_seconds: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _one_way(self) -> "KapacitorFunctionSettings":
        if bool(self.prog) == bool(self.socket):
            raise ValueError("name either prog or socket")
        return self


class KapacitorSettings(Group):
    """`socket`: where `candlewright kapacitor-udf` listens by default (empty: stdin and stdout);
    `timeout_seconds`: how long it waits for its connections to end when it is stopped; `udf`: external functions.
    """

    socket: str = ""
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
    """A Numaflow source that is read into `topic`. `mapping`: how its payloads become records; empty = the payload is
    the record. For `ticks`, names of JSON fields by `ticker`, `price`, `size`, `side`, `ts`, `trade_id`. `unfit`: what
    happens to a payload that is not a record of `topic`: it goes to `dead_letters` (by default NAME_dead_letters), or
    reading stops before it. `max_records`, `timeout_ms`: of one read.
    """

    socket: str = "/var/run/numaflow/source.sock"
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    topic: str = Field(min_length=1)
    mapping: Mapping[str, str] = {}
    unfit: Literal["dead_letter", "stop"] = "dead_letter"
    dead_letters: str = ""
    max_records: int = Field(500, ge=1, le=10_000)
    timeout_ms: int = Field(1_000, ge=0, le=60_000)

    @field_validator("mapping", mode="before")
    @classmethod
    def _decoded(cls, value: object) -> object:
        return _of_json(value)
