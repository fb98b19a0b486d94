"""The settings that the relay reads, and fixed limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.settings import Settings, TriggersSettings
from core.settings_gateways import KapacitorFunctionSettings
from core.settings_keep import KeepSettings

SECOND_NS = 1_000_000_000


@dataclass(kw_only=True, frozen=True, slots=True)
class RelayLimits:
    """Every queue of the relay is bounded; relay/README.md describes what happens when one is full."""

    #: Longer subscriptions are refused.
    max_topic_bytes: int = 512
    #: Messages taken from the requests socket before their answers are sent.
    round_messages: int = 64
    #: Messages to one client in the socket's own queue, then bytes of answers that wait in the relay.
    client_queue: int = 200
    client_backlog: int = 20_000
    #: Messages queued for one subscriber before it starts to lose some.
    subscriber_queue: int = 50_000
    #: The most kept finals replayed for one subscription.
    max_replayed: int = 10_000
    #: Finals of client topics whose positions on the bus are kept in memory.
    max_indexed: int = 1_000_000
    max_waiting_reads: int = 1_000
    max_running_tasks: int = 64
    max_topic_records: int = 10_000
    max_topic_bytes_read: int = 64 << 20
    max_legacy_rows: int = 1_000_000
    page_rows: int = 1_000
    #: Rows of one answer to a StoredQuery; the client requests the next ones.
    max_stored_rows: int = 50_000
    venue_refresh_seconds: float = 1.0
    #: Topics of ticks and bars with realtime jobs: in total, per sender (a key, else an address) over all its
    #: connections, and per connection; more are refused until there is room.
    max_live_topics: int = 20_000
    max_topics_of_sender: int = 15_000
    max_topics_of_connection: int = 10_000
    #: How long (s) a job outlives its last subscriber, and how long after a start of the relay it waits for subscribers
    #: to reconnect.
    linger_seconds: float = 1.0
    grace_seconds: float = 10.0
    #: How often (s) a topic that could not be served is checked again.
    unserved_retry_seconds: float = 5.0
    #: Requests about triggers that may wait for a check or for the bus, and their bytes; and those that may wait for
    #: the pipeline.
    max_trigger_backlog: int = 20_000
    max_backlog_bytes: int = 64 << 20
    max_waiting_triggers: int = 20_000
    #: Bytes of all registered triggers, and of one list of them.
    max_trigger_bytes: int = 256 << 20
    max_list_bytes: int = 15 << 20
    #: Registered views, their bytes, changes that may wait, and the triggers that one change may restart.
    max_views: int = 1_000
    max_view_bytes: int = 8 << 20
    max_waiting_views: int = 1_000
    max_view_triggers: int = 1_000
    #: Lists of triggers that may be in preparation.
    max_running_lists: int = 64
    #: How long (s) after a start events are kept for returning subscribers; at most this many, and this many bytes.
    recent_seconds: float = 30.0
    max_recent: int = 10_000
    max_recent_bytes: int = 64 << 20


@dataclass(kw_only=True, frozen=True, slots=True)
class RelayConfig:
    requests_bind: str
    notifications_bind: str
    keep_seconds: float
    timeout_ns: int
    limits: RelayLimits = RelayLimits()
    triggers: TriggersSettings = field(default_factory=TriggersSettings)
    #: With keys on, the folder of keys.
    keys_in: Path | None = None
    #: The operator's functions that triggers may name.
    functions: Mapping[str, KapacitorFunctionSettings] = field(default_factory=dict)
    #: The names of alert destinations.
    destinations: frozenset[str] = frozenset()
    keep: tuple[KeepSettings, ...] = ()

    @property
    def registry_seconds(self) -> float:
        """How long a request id is remembered: until its deadline, and then as long as its final is kept."""
        return self.timeout_ns / SECOND_NS + self.keep_seconds + 3_600

    @classmethod
    def of(cls, settings: Settings, limits: RelayLimits | None = None) -> "RelayConfig":
        relay = settings.relay
        return cls(
            requests_bind=relay.requests_bind,
            notifications_bind=relay.notifications_bind,
            keep_seconds=relay.keep_notifications_hours * 3_600,
            timeout_ns=int(relay.request_timeout_seconds * SECOND_NS),
            limits=limits or RelayLimits(),
            triggers=settings.triggers,
            keys_in=settings.data_dir if settings.security.curve else None,
            functions=settings.gateways.kapacitor.udf,
            destinations=frozenset(settings.alerts.destinations),
            keep=settings.keep,
        )
