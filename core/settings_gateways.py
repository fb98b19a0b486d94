"""Settings of the gateways: other systems' protocols over the same bus."""

from collections.abc import Mapping

from pydantic import Field, field_validator, model_validator

from core.settings_group import Group


class KafkaPixySettings(Group):
    """`partitions` of topics that clients make (0: as `bus.partitions`); `max_retries`: how often a message that
    nobody acknowledges is offered again before it is dropped, -1 = for ever.
    """

    enabled: bool = False
    bind: str = "127.0.0.1:19091"
    ack_timeout_seconds: float = Field(300.0, gt=0)
    max_retries: int = Field(-1, ge=-1)
    partitions: int = Field(0, ge=0, le=1_024)
    long_polling_seconds: float = Field(3.0, gt=0)
    channel_buffer_size: int = Field(64, ge=1)
    max_pending_messages: int = Field(300, ge=1)


class RocketMQSettings(Group):
    """`advertise`: the address (host:port) that clients are sent to, by default the one that they came with;
    `tls_cert`, `tls_key`: PEM files, by default a certificate made in the data directory; `nack_delays_seconds`: after
    the first, second, … failure, the last one for all further; `access_keys`: secrets by key, empty = open to all.
    """

    enabled: bool = False
    bind: str = "127.0.0.1:8081"
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


class NumaflowSettings(Group):
    """`topic`: one or a list; `redeliver_seconds`: what nobody acknowledged for so long goes to another replica."""

    enabled: bool = False
    socket: str = "/var/run/numaflow/source.sock"
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    topic: tuple[str, ...] = ("ticks",)
    group: str = "numaflow"
    redeliver_seconds: float = Field(60.0, gt=0)

    @field_validator("topic", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class KapacitorFunctionSettings(Group):
    """A UDF of the operator's that triggers may use: a process (`prog`) or a server on a unix socket."""

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
    """`socket`: where `candlewright kapacitor-udf` listens unless told otherwise (empty: stdin and stdout)."""

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
        """Whether there is something to serve for the process `gateways`."""
        return self.kafka_pixy.enabled or self.rocketmq.enabled or self.numaflow.enabled


class NumaflowSourceSettings(Group):
    """A Numaflow source that an ingestor reads into `topic`; `mapping`: how its payloads become records."""

    socket: str = "/var/run/numaflow/source.sock"
    server_info: str = "/var/run/numaflow/sourcer-server-info"
    topic: str = ""
    mapping: Mapping[str, str] = {}
