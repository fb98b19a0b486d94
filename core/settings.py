"""All settings of the platform, read once per process.

Precedence, highest first: command line (`overrides`), environment (`CANDLEWRIGHT_BROKER__LEASE_SECONDS=2`), the TOML
file (`candlewright.toml`, or the path given), defaults. An unknown key is an error, and so is an environment variable
that must have been meant as a setting, so that a typo never silently leaves the default.
"""

import os
import warnings
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from candlewright.settings import ClientConfig, Group, RelayAddresses, SparkAddress, load
from candlewright.settings.binds import ZeroMQBind
from core.origin import Origin
from core.settings_alerts import AlertsSettings
from core.settings_console import ConsoleSettings
from core.settings_gateways import GatewaysSettings, NumaflowSourceSettings
from core.settings_keep import KeepSettings

#: Groups of the platform refuse keys that they do not know.
_WHOLE = ConfigDict(extra="forbid")


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach that address (`host:port`, with or without `tcp://`)."""
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return bind.startswith(("ipc://", "inproc://"))


class BrokerSettings(Group):
    #: The socket that ingestors connect to.
    bind: ZeroMQBind = "tcp://127.0.0.1:5567"
    #: A job whose ingestor was silent for this long is given to another slot.
    lease_seconds: float = Field(15.0, gt=0)
    #: How often the broker greets each ingestor; at least three times per lease.
    heartbeat_seconds: float = Field(5.0, gt=0)
    #: Counted failures after which a piece of a request is given up.
    max_attempts: int = Field(3, ge=1)
    #: Ingestors that may be connected at a time.
    max_connections: int = Field(1_000, ge=1)
    #: Slots that ingestors may offer, and live jobs, at a time.
    max_slots: int = Field(100_000, ge=1)
    #: A request waits this long for an answer about proven ranges before all of it is fetched; 0 = fetch immediately.
    proof_seconds: float = Field(5.0, ge=0)


class RolesSettings(Group):
    """Who takes over when a process is silent."""

    #: How long a broker, a driver or a relay's registry may be silent before a standby takes over.
    lease_seconds: float = Field(5.0, ge=0.5)


class RelaySettings(RelayAddresses):
    model_config = _WHOLE

    #: How long finals, accepted requests and messages of streams are kept for clients that return.
    keep_notifications_hours: float = Field(24.0, gt=0)
    #: A historical request that has not ended by then ends as TIMEOUT.
    request_timeout_seconds: float = Field(3_600.0, gt=0)


class SecuritySettings(Group):
    """Keys of clients and ingestors."""

    #: Relay and broker accept only holders of a key of their role (`candlewright keys new`).
    curve: bool = False


class IngestorSettings(Group):
    #: Historical jobs and snapshots that one ingestor runs at a time, for each venue.
    slots_historical: int = Field(4, ge=0)
    #: Live tickers that one ingestor streams at a time, for each venue.
    slots_realtime: int = Field(16, ge=0)
    #: Exchanges to serve, by ccxt's names.
    venues: tuple[str, ...] = ("BINANCE", "KRAKEN", "OKX", "BYBIT", "COINBASE")
    #: One address or several, among which the ingestor looks for the serving broker.
    broker: str | tuple[str, ...] = ""
    #: How long one call to an exchange may take.
    request_timeout_seconds: float = Field(10.0, gt=0)
    #: Share of each exchange's rate limit that all ingestors together use.
    budget_share: float = Field(0.7, gt=0, le=1)
    #: Share of that rate for keep-fresh rules; the rest is left for requests of clients.
    background_share: float = Field(0.5, gt=0, le=1)
    #: If off, rate limits are not applied, which only the sandbox tolerates.
    rate_limit: bool = True
    #: Share of the minutes whose live bars are compared with the exchange's own candles.
    bar_check_share: float = Field(0.02, ge=0, le=1)
    #: A live ticker that has been silent for less than this is not checked over REST.
    silence_floor_seconds: float = Field(2.0, gt=0)
    #: Name of the outgoing address: ingestors with one name share one rate budget per exchange.
    egress: str = "default"
    #: File of `candlewright keys new NAME --role ingestor`, if the platform has keys on.
    key: str = ""
    numaflow: Mapping[str, NumaflowSourceSettings] = {}

    @field_validator("venues")
    @classmethod
    def _upper(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(venue.upper() for venue in value)


class ExchangeSettings(Group):
    #: Another server for this venue; no other host is then contacted for it.
    url: str = ""


class BusSettings(Group):
    """docs/operations.md says what happens beyond the bounds."""

    #: The Redis server; empty: one that the platform starts.
    url: str = ""
    #: Partitions of new topics. Existing topics keep theirs.
    partitions: int = Field(4, ge=1, le=1_024)
    #: When an acknowledged record is on the disk: before the acknowledgement, within about a second, or when the system
    #: writes it.
    fsync: Literal["always", "everysec", "no"] = "always"
    #: A consumer group that no one has used for this long is dropped.
    group_expiry_hours: float = Field(168.0, gt=0)
    #: Most bytes of one topic, and of one queue of timed messages.
    max_bytes: int = Field(1 << 30, ge=1 << 20)
    #: Most topics, including those of gateway clients.
    max_topics: int = Field(10_000, ge=100)
    #: Most consumer groups of one topic.
    max_groups: int = Field(1_000, ge=1)
    #: Most names in one registry, such as ids of accepted requests.
    max_names: int = Field(1_000_000, ge=1_000)
    #: Most rows in one table whose rows expire.
    max_rows: int = Field(250_000, ge=1_000)


class SparkSettings(SparkAddress):
    model_config = _WHOLE

    #: `local[N]`, or the address of a cluster.
    master: str = "local[*]"
    #: Folder or URL for the offsets of the queries; by default in the data directory.
    checkpoints: str = ""
    #: Maven coordinates of further jars.
    packages: tuple[str, ...] = ()
    #: Heap of the driver's JVM.
    driver_memory: str = "1g"
    #: Minimum time from one micro-batch to the next; 0: as soon as possible.
    trigger_milliseconds: int = Field(0, ge=0)
    #: Of a cluster; 0 = every one that it has.
    max_cores: int = Field(0, ge=0)
    #: How live data is evaluated: by long-running tasks as it arrives, or in micro-batches.
    mode: Literal["continuous", "batch"] = "continuous"
    #: How often long-running tasks report what they have done.
    interval_seconds: float = Field(5.0, gt=0, le=60)


class IcebergSettings(Group):
    #: A file in the data directory, a REST catalog, or a database.
    catalog: Literal["sqlite", "rest", "jdbc"] = "sqlite"
    #: Address of the catalog; empty for `sqlite`: `catalog.db` in the data directory.
    uri: str = ""
    #: Where the tables' files are: `file://` or `s3://`; by default in the data directory.
    warehouse: str = ""
    #: Properties for both readers, such as `s3.endpoint`.
    properties: Mapping[str, str] = {}
    #: Stored trades older than this are deleted; 0: never.
    ticks_retention_days: int = Field(0, ge=0)
    #: Pause between two rounds of upkeep of the tables; 0: none, except that old snapshots are dropped.
    maintenance_minutes: float = Field(30.0, ge=0)


class TicksSettings(Group):
    """Trades whose times are not plausible."""

    #: How far ahead of the exchange's clock a trade's time may be. Trades further ahead are put aside, since one would
    #: end every bar before it.
    max_ahead_seconds: float = Field(5.0, gt=0)

    @property
    def max_ahead_ns(self) -> int:
        return round(self.max_ahead_seconds * 1e9)


class BarsSettings(Group):
    """When live bars are final."""

    #: How long a bar waits for trades after its end by the exchange's clock.
    lateness_seconds: float = Field(0.0, ge=0)
    #: How long after that a late trade still corrects it.
    revision_seconds: float = Field(3_600.0, ge=0)


class TriggersSettings(Group):
    """Bounds of registered triggers."""

    #: How much older than its ticker's newest trade a trade may be before it counts as late.
    watermark_delay_seconds: float = Field(0.0, ge=0)
    #: Silence by the wall clock after which a ticker's partition closes; 0: never.
    idle_seconds: float = Field(0.0, ge=0)
    #: Rows that one trigger keeps per ticker before it drops its oldest partial matches.
    max_rows_per_key: int = Field(1_000_000, ge=4)
    #: Values of PARTITION BY for which one trigger keeps state at a time; one with more is suspended.
    max_partitions: int = Field(50_000, ge=1)
    #: Rows that wait for a slow trigger before it is suspended.
    max_waiting_rows: int = Field(100_000, ge=1)
    #: Registered triggers; further ones are refused.
    max_triggers: int = Field(100_000, ge=1)
    #: How long a client waits at most for confirmation that its trigger runs or has stopped.
    activation_timeout_seconds: float = Field(30.0, gt=0)


class LogSettings(Group):
    #: The least severe events that are logged.
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(ClientConfig):
    """Shape of `candlewright.toml`; one frozen instance per process."""

    model_config = SettingsConfigDict(extra="forbid")

    #: The kind of data of this start; by default the sandbox's with `up --sandbox`, else that of exchanges.
    origin: Origin | None = None
    broker: BrokerSettings = BrokerSettings()
    roles: RolesSettings = RolesSettings()
    relay: RelaySettings = RelaySettings()
    security: SecuritySettings = SecuritySettings()
    ingestor: IngestorSettings = IngestorSettings()
    exchange: Mapping[str, ExchangeSettings] = {}
    bus: BusSettings = BusSettings()
    spark: SparkSettings = SparkSettings()
    iceberg: IcebergSettings = IcebergSettings()
    ticks: TicksSettings = TicksSettings()
    bars: BarsSettings = BarsSettings()
    triggers: TriggersSettings = TriggersSettings()
    gateways: GatewaysSettings = GatewaysSettings()
    alerts: AlertsSettings = AlertsSettings()
    #: Rules of candles that are kept fresh.
    keep: tuple[KeepSettings, ...] = Field((), max_length=1_000)
    console: ConsoleSettings = ConsoleSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        """`relay.curve`, the name from when only the relay had keys."""
        relay = values.get("relay") if isinstance(values, dict) else None
        if not isinstance(relay, Mapping) or "curve" not in relay:
            return values
        warnings.warn("relay.curve is now called security.curve, and holds for the broker too", stacklevel=2)
        kept = {name: value for name, value in relay.items() if name != "curve"}
        return values | {"relay": kept, "security": {"curve": relay["curve"]} | dict(values.get("security", {}))}

    @field_validator("exchange", mode="before")
    @classmethod
    def _venues_in_capitals(cls, value: Any) -> Any:
        return {venue.upper(): group for venue, group in value.items()} if isinstance(value, dict) else value

    @property
    def has_gateways(self) -> bool:
        """Whether the process `gateways` is needed."""
        return self.gateways.is_any_enabled or bool(self.ingestor.numaflow)

    @property
    def unguarded(self) -> tuple[str, ...]:
        """Sockets of relay and broker that other machines can reach while keys are off."""
        binds = (self.relay.requests_bind, self.relay.notifications_bind, self.broker.bind)
        return () if self.security.curve else tuple(bind for bind in binds if not is_loopback(bind))

    def exchange_url(self, venue: str) -> str:
        """The server to use for `venue` instead of the real exchange, or an empty string."""
        group = self.exchange.get(venue)
        return group.url if group else ""


def load_settings(file: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings of the platform; raises ConfigurationError with one sentence per problem."""
    return load(Settings, file, overrides)
