"""Names on the bus that several parts share.

What the parts must know about a topic is declared here once: its message, who may see it, and how long its records are
kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec


class Kept(Enum):
    """How long records that no reader holds stay on a topic."""

    JOURNAL = "ten minutes: nothing reads them again"
    STREAM = "relay.keep_notifications_hours: returning clients and a rebuilt pipeline read them again"
    UP_TO_SIZE = "until the topic has bus.max_bytes"


@dataclass(frozen=True, slots=True)
class Topic:
    """`message`: what its records are; None if they are not one Protocol Buffers message. `is_public`: clients of
    gateways see it. `is_ending`: its records are results of records accepted before; a store at its memory limit
    accepts them, because it would never have room otherwise.
    """

    name: str
    message: type[Message] | None
    is_public: bool
    kept: Kept
    is_ending: bool


_declared: dict[str, Topic] = {}
#: Every topic of the platform, by name.
TOPICS: Mapping[str, Topic] = MappingProxyType(_declared)


def _topic(
    name: str, message: type[Message] | None, *, kept: Kept, is_public: bool = False, is_ending: bool = False
) -> str:
    _declared[name] = Topic(name, message, is_public=is_public, kept=kept, is_ending=is_ending)
    return name


#: Gateway-visible, fixed by the contract. TICKS takes a Tick as well; key = ticker
TICKS = _topic("ticks", cw.TickBatch, kept=Kept.STREAM, is_public=True)
#: Key = ticker
OHLC = _topic("ohlc", cw.OHLCV, kept=Kept.STREAM, is_public=True, is_ending=True)
#: Key = trigger id, partition of the ticker
TRIGGER_EVENTS = _topic("trigger_events", ing.CEPTriggerEvent, kept=Kept.STREAM, is_public=True, is_ending=True)
#: Key = request id
NOTIFICATIONS = _topic("notifications", ing.HistoryReadyNotification, kept=Kept.STREAM, is_public=True, is_ending=True)

#: Internal topics. Key = request id, one partition
REQUESTS = _topic("requests", rec.Request, kept=Kept.JOURNAL)
#: Partition of the ticker
HISTORY = _topic("history", rec.HistoryPage, kept=Kept.JOURNAL)
#: Partition of the ticker
HISTORY_OUTCOMES = _topic("history_outcomes", rec.HistoryOutcome, kept=Kept.JOURNAL, is_ending=True)
#: Key = request id, one partition
PROOF_QUESTIONS = _topic("proof_questions", rec.ProofQuestion, kept=Kept.JOURNAL)
#: Key = request id, one partition
PROOFS = _topic("proofs", rec.Proof, kept=Kept.JOURNAL)
#: Key = ticker
SNAPSHOTS = _topic("snapshots", cw.Snapshot, kept=Kept.STREAM)
#: Partition of the ticker, key = ticker
TICK_MARKS = _topic("tick_marks", rec.TickMark, kept=Kept.STREAM)
#: Rows that the live query stores, in the partitions of TICKS: see flink_replacement_spark.live.tick_rows
TICK_ROWS = _topic("tick_rows", None, kept=Kept.JOURNAL, is_ending=True)
#: Key = trigger id, one partition
TRIGGER_CONTROLS = _topic("trigger_controls", rec.TriggerControl, kept=Kept.UP_TO_SIZE)
#: One partition
TRIGGER_PROGRESS = _topic("trigger_progress", rec.TriggerProgress, kept=Kept.JOURNAL, is_ending=True)
#: Key = trigger id, one partition
FUNCTION_ROWS = _topic("function_rows", rec.FunctionRows, kept=Kept.JOURNAL, is_ending=True)
#: Trigger requests that other relays forward to the registry, one partition
RELAY_ASKS = _topic("registry_asks", None, kept=Kept.JOURNAL)
#: The registry's answers to them, and its notices, one partition
RELAY_ANSWERS = _topic("registry_answers", None, kept=Kept.JOURNAL)
#: JSON of a finished delivery of an alert, one partition: see alerts.alert.Outcome
DELIVERIES = _topic("deliveries", None, kept=Kept.UP_TO_SIZE, is_ending=True)
#: Key = topic of the record, one partition: see bus.dead_letters, which also bounds it
DEAD_LETTERS = _topic("dead_letters", rec.DeadLetter, kept=Kept.UP_TO_SIZE, is_ending=True)

#: The topics that a full store still accepts.
ENDING = frozenset(topic.name for topic in TOPICS.values() if topic.is_ending)

#: Registries of `publish_once`.
REGISTRY_REQUESTS = "requests"  # request id -> Request
REGISTRY_FINALS = "finals"  # request id -> HistoryReadyNotification
REGISTRY_DEAD_LETTERS = "dead_letters"  # part, position and content of a record that was put aside recently
REGISTRY_DELIVERIES = "deliveries"  # names of deliveries whose outcomes are on DELIVERIES

#: Registries whose names must not be forgotten early: too many are refused. In others, the oldest is removed.
REFUSING_REGISTRIES = frozenset({REGISTRY_REQUESTS})

#: Keyed tables.
TABLE_VENUES = "venues"  # venue -> candlewright.Venue, kept fresh by ingestors
TABLE_RELAYS = "relays"  # relay -> nothing, kept fresh while it runs
TABLE_BROKER = "broker"  # SERVING_KEY -> the epoch of the broker whose door is open
TABLE_SERVED = "served_venues"  # SERVED_KEY -> ServedVenues, kept fresh by the broker
TABLE_QUIET_RANGES = "quiet_ranges"  # ticker -> QuietRanges, found by ingestors
TABLE_REQUEST_STATES = "request_states"  # request id -> RequestState (broker's progress)
TABLE_BROKER_PROGRESS = "broker_progress"  # request id -> accepted pieces whose outcomes the broker no longer holds
TABLE_HISTORY_WRITTEN = "history_written"  # partition of HISTORY_OUTCOMES -> end of what the history writer has written
TABLE_PROVER = "prover"  # PROVER_KEY -> b"", kept fresh by the driver while it answers PROOF_QUESTIONS
TABLE_TRIGGERS = "triggers"  # trigger id -> TriggerEntry, written by the relay
TABLE_JOINT_TRIGGERS = "joint_triggers"  # ids of triggers that take rows of several bus partitions together
TABLE_VIEWS = "views"  # name of a view -> ViewEntry, written by the relay
TABLE_FUNCTION_STATES = "function_states"  # trigger id -> state of its external function, written by the driver
TABLE_TRIGGER_COSTS = "trigger_costs"  # partition of the trigger query -> TriggerCosts, written by it
TABLE_WANTED = "broker_wanted"  # ticker -> Wanted, the union of the requests for it, written by the broker
TABLE_REALTIME = "broker_realtime"  # request id -> DataRequest of a running realtime request, written by the broker
TABLE_SUBSCRIPTIONS = "subscriptions"  # topic -> request id of the realtime job that the relay requested
TABLE_DEAD_LETTERS = "dead_letters"  # part and topic -> the newest DeadLetter of them, without its record
TABLE_ALERTS = "alerts"  # `positions`: how far the alerts have read
TABLE_ALERTS_WAITING = "alerts_waiting"  # key of a delivery -> Delivery, until its outcome is on DELIVERIES
TABLE_ALERTS_ABANDONED = "alerts_abandoned"  # key of a delivery -> Delivery that was given up, for a week
TABLE_ALERTS_AGAIN = "alerts_again"  # key of an abandoned delivery that a person wants sent again
TABLE_ALERTS_OPENED = "alerts_opened"  # key -> Opened: an alert that another trigger's event resolves, for 30 days
TABLE_SILENCES = "silences"  # id -> Silence, written by `candlewright alerts silence`
TABLE_KEEP_RULES = "keep_rules"  # name -> Rule, written by `candlewright keep add`; relay.keep.rules
TABLE_KEEP_SERIES = "keep_series"  # ticker and period -> Series, how far the relay keeps it; relay.keep.series
TABLE_KEEP = "keep"  # `summary`: the lagging series, for a minute
TABLE_IMPORTS = "imports"  # id -> Import that `candlewright import` ordered; core.imports
TABLE_LOST_RECORDS = "lost_records"  # topic -> records that a reader had read and the store lost, for a day; bus.lost
TABLE_PLATFORM = "platform"  # facts about everything on this bus: `origin` (core.origin)

#: The one key of TABLE_BROKER.
SERVING_KEY = "serving"
#: The one key of TABLE_SERVED.
SERVED_KEY = "slots"
#: The one key of TABLE_PROVER.
PROVER_KEY = "driver"

#: A realtime request that a relay makes for the subscribers of a topic has the id `subscription:{topic}:{uuid}`.
SUBSCRIPTION_PREFIX = "subscription:"
#: A historical request by which a relay keeps stored candles fresh; those of clients go ahead of it.
KEEP_PREFIX = "keep:"

#: Readers that hold records (Bus.hold).
READER_BROKER = "broker"
READER_HISTORY_WRITER = "history-writer"
READER_BAR_MAKER = "bar-maker"
READER_BAR_STATE = "bar-state"
READER_TRIGGERS = "triggers"
READER_TRIGGER_FUNCTIONS = "trigger-functions"
READER_TRIGGER_TABLE = "trigger-table"
READER_REVISION_TABLE = "revision-table"
READER_BAR_TABLE = "bar-table"
READER_TICK_TABLE = "tick-table"
READER_DELIVERY_TABLE = "delivery-table"
