"""All settings of the platform, read once per process.

Order, strongest first: command line (`overrides`), environment (`CANDLEWRIGHT_BROKER__LEASE_SECONDS=2`), the TOML
file (`candlewright.toml`, or the path given), defaults. An unknown key is an error, and so is a variable of the
environment that must be meant as one, so that a typing mistake is not silently a default.
"""

import os
import tomllib
import warnings
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from candlewright.wire.errors import ConfigurationError
from core import settings_environment
from core.binds import HostPort, ZeroMQBind
from core.origin import Origin
from core.settings_gateways import GatewaysSettings, NumaflowSourceSettings
from core.settings_group import Group
from core.spark_connect import TOKEN, connect_url

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_FILE = "candlewright.toml"
PREFIX = "CANDLEWRIGHT_"


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach what is bound there (`host:port`, with or without `tcp://`)."""
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return bind.startswith(("ipc://", "inproc://"))


class BrokerSettings(Group):
    bind: ZeroMQBind = "tcp://127.0.0.1:5567"
    lease_seconds: float = Field(15.0, gt=0)
    heartbeat_seconds: float = Field(5.0, gt=0)
    max_attempts: int = Field(3, ge=1)
    max_connections: int = Field(1_000, ge=1)
    max_slots: int = Field(100_000, ge=1)
    #: A request waits this long to hear what the table proves of it before all of it is fetched; 0 = fetch at once.
    proof_seconds: float = Field(5.0, ge=0)


class RolesSettings(Group):
    """`lease_seconds`: how long a broker, a driver or a relay's registry may be silent before a standby takes over."""

    lease_seconds: float = Field(5.0, ge=0.5)


class RelaySettings(Group):
    requests_bind: ZeroMQBind = "tcp://127.0.0.1:5559"
    notifications_bind: ZeroMQBind = "tcp://127.0.0.1:5558"
    keep_notifications_hours: float = Field(24.0, gt=0)
    request_timeout_seconds: float = Field(3_600.0, gt=0)
    #: Keys on: clients are let in by CURVE keys (`candlewright keys new`), and see only what is theirs.
    curve: bool = False

    @property
    def unguarded(self) -> tuple[str, ...]:
        """What others than this machine can reach while keys are off."""
        binds = () if self.curve else (self.requests_bind, self.notifications_bind)
        return tuple(bind for bind in binds if not is_loopback(bind))


class ClientSettings(Group):
    """`key`: the file of `candlewright keys new`, where the platform has keys on."""

    key: str = ""


class IngestorSettings(Group):
    slots_historical: int = Field(4, ge=0)
    slots_realtime: int = Field(16, ge=0)
    venues: tuple[str, ...] = ("BINANCE", "KRAKEN", "OKX", "BYBIT", "COINBASE")
    #: One address or several, of which the ingestor looks for the broker that serves.
    broker: str | tuple[str, ...] = ""
    request_timeout_seconds: float = Field(10.0, gt=0)
    budget_share: float = Field(0.7, gt=0, le=1)
    rate_limit: bool = True
    #: Share of the minutes whose live bars are compared with the exchange's own candles.
    bar_check_share: float = Field(0.02, ge=0, le=1)
    #: A live ticker that is silent for less than this is never asked about.
    silence_floor_seconds: float = Field(2.0, gt=0)
    #: Name of the address that requests leave by: ingestors of one name share one rate budget an exchange.
    egress: str = "default"
    numaflow: Mapping[str, NumaflowSourceSettings] = {}

    @field_validator("venues")
    @classmethod
    def _upper(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(venue.upper() for venue in value)


class ExchangeSettings(Group):
    url: str = ""


class BusSettings(Group):
    """`max_bytes`: of a topic; `max_topics`, `max_groups` (of a topic), `max_names` (of a registry), `max_rows` (of a
    table whose rows expire): docs/operations.md says what becomes of more.
    """

    url: str = ""
    partitions: int = Field(4, ge=1, le=1_024)
    fsync: Literal["always", "everysec", "no"] = "always"
    group_expiry_hours: float = Field(168.0, gt=0)
    max_bytes: int = Field(1 << 30, ge=1 << 20)
    max_topics: int = Field(10_000, ge=100)
    max_groups: int = Field(1_000, ge=1)
    max_names: int = Field(1_000_000, ge=1_000)
    max_rows: int = Field(250_000, ge=1_000)


class SparkSettings(Group):
    """`checkpoints`: a folder or URL for the offsets of the queries, by default in the data directory; `packages`:
    Maven coordinates of further jars.
    """

    master: str = "local[*]"
    connect_bind: HostPort = "127.0.0.1:15002"
    checkpoints: str = ""
    packages: tuple[str, ...] = ()
    driver_memory: str = "1g"
    trigger_milliseconds: int = Field(0, ge=0)
    conf: Mapping[str, str] = {}

    @property
    def connect_url(self) -> str:
        """The `sc://` address of the platform's Spark Connect."""
        return connect_url(self.connect_bind, self.conf.get(TOKEN, ""))


class IcebergSettings(Group):
    catalog: Literal["sqlite", "rest", "jdbc"] = "sqlite"
    uri: str = ""
    warehouse: str = ""
    properties: Mapping[str, str] = {}
    ticks_retention_days: int = Field(0, ge=0)
    maintenance_minutes: float = Field(30.0, ge=0)


class TicksSettings(Group):
    """`max_ahead_seconds`: how far ahead of the exchange's clock a trade's time may be. What is further ahead is put
    aside, since it would end every bar before it.
    """

    max_ahead_seconds: float = Field(5.0, gt=0)

    @property
    def max_ahead_ns(self) -> int:
        return round(self.max_ahead_seconds * 1e9)


class BarsSettings(Group):
    """`lateness_seconds`: how long a bar waits for trades after its end by the exchange's clock; `revision_seconds`:
    how long after that a late trade still corrects it.
    """

    lateness_seconds: float = Field(0.0, ge=0)
    revision_seconds: float = Field(3_600.0, ge=0)


class TriggersSettings(Group):
    """`watermark_delay_seconds`: how far behind the newest trade of its ticker a trade may be; `idle_seconds`: quiet
    time by the wall clock after which a ticker's partition closes, 0 = never; `max_rows_per_key`: rows that one trigger
    keeps of one ticker before it gives its oldest partial matches up; `max_partitions`: those of its PARTITION BY that
    one trigger keeps at a time, past which it is suspended; `activation_timeout_seconds`: how long a client
    waits at most to hear that its trigger runs, or does no more.
    """

    watermark_delay_seconds: float = Field(0.0, ge=0)
    idle_seconds: float = Field(0.0, ge=0)
    max_rows_per_key: int = Field(1_000_000, ge=4)
    max_partitions: int = Field(50_000, ge=1)
    max_triggers: int = Field(100_000, ge=1)
    activation_timeout_seconds: float = Field(30.0, gt=0)


class HttpSettings(Group):
    bind: HostPort = "127.0.0.1:8080"


class LogSettings(Group):
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """Shape of `candlewright.toml`; one frozen instance per process."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter=settings_environment.NESTED,
        nested_model_default_partial_update=True,
    )

    data_dir: Path = Path("data")
    #: What kind of data this start adds; by default the sandbox's with `up --sandbox`, else that of exchanges.
    origin: Origin | None = None
    broker: BrokerSettings = BrokerSettings()
    roles: RolesSettings = RolesSettings()
    relay: RelaySettings = RelaySettings()
    client: ClientSettings = ClientSettings()
    ingestor: IngestorSettings = IngestorSettings()
    exchange: dict[str, ExchangeSettings] = {}
    bus: BusSettings = BusSettings()
    spark: SparkSettings = SparkSettings()
    iceberg: IcebergSettings = IcebergSettings()
    ticks: TicksSettings = TicksSettings()
    bars: BarsSettings = BarsSettings()
    triggers: TriggersSettings = TriggersSettings()
    gateways: GatewaysSettings = GatewaysSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @field_validator("exchange", mode="before")
    @classmethod
    def _venues_in_capitals(cls, value: Any) -> Any:
        return {venue.upper(): group for venue, group in value.items()} if isinstance(value, dict) else value

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.absolute()

    @property
    def has_gateways(self) -> bool:
        """Whether there is something to do for the process `gateways`."""
        return self.gateways.is_any_enabled or bool(self.ingestor.numaflow)

    def exchange_url(self, venue: str) -> str:
        """The server to use for `venue` instead of the real exchange, or an empty string."""
        group = self.exchange.get(venue)
        return group.url if group else ""


def load_settings(file: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings.

    `file`: a TOML file; by default the one that CANDLEWRIGHT_CONFIG names, else `candlewright.toml` where it exists.
    `overrides`: nested values from the command line.
    Raises ConfigurationError with one sentence a problem. Warns of variables with our prefix that may be another's.
    """
    errors, doubts = settings_environment.problems(os.environ, PREFIX, Settings)
    if errors:
        raise ConfigurationError(f"settings: {'; '.join(errors)}")
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    chosen = file or os.environ.get(f"{PREFIX}CONFIG")
    if chosen and not Path(chosen).is_file():
        raise ConfigurationError(f"no such settings file: {chosen}")
    path = Path(chosen or DEFAULT_FILE)

    class FileSettings(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)

    try:
        return FileSettings(**(overrides or {}))
    except ValidationError as error:
        raise ConfigurationError(f"settings: {'; '.join(map(_problem, error.errors()))}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"settings: {path} is no TOML: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"settings: {error}") from error


def _problem(found: "ErrorDetails") -> str:
    name = ".".join(map(str, found["loc"]))
    if found["type"] != "extra_forbidden":
        return f"{name}: {found['msg'].removeprefix('Value error, ')}"
    nearest = settings_environment.nearest_setting(name, Settings)
    return f"{name}: no such setting" + (f"; did you mean {nearest}?" if nearest else ", and none is named like it")
