"""Names on the bus that several parts share, with their record types."""

#: Gateway-visible, fixed by the contract.
TICKS = "ticks"  # TickBatch (or Tick), key = ticker
OHLC = "ohlc"  # OHLCV, key = ticker
TRIGGER_EVENTS = "trigger_events"  # CEPTriggerEvent, key = trigger id, partition of the ticker
NOTIFICATIONS = "notifications"  # HistoryReadyNotification, key = request id

#: Inner topics (protobuf/records.proto).
REQUESTS = "requests"  # Request, key = request id, one partition
HISTORY = "history"  # HistoryPage, partition of the ticker
HISTORY_OUTCOMES = "history_outcomes"  # HistoryOutcome, partition of the ticker
PROOF_QUESTIONS = "proof_questions"  # ProofQuestion, key = request id, one partition
PROOFS = "proofs"  # Proof, key = request id, one partition
SNAPSHOTS = "snapshots"  # Snapshot, key = ticker
TICK_MARKS = "tick_marks"  # TickMark, partition of the ticker, key = ticker
TICK_ROWS = (
    "tick_rows"  # rows that the live query stores: see flink_replacement_spark.live.tick_rows; partitions of TICKS
)
TRIGGER_CONTROLS = "trigger_controls"  # TriggerControl, key = trigger id, one partition
TRIGGER_PROGRESS = "trigger_progress"  # TriggerProgress, one partition
DELIVERIES = "deliveries"  # JSON of a finished delivery of an alert, one partition; see alerts.alert.Outcome
DEAD_LETTERS = "dead_letters"  # DeadLetter, key = topic of the record, one partition; see bus.dead_letters

#: Results of records accepted before. A store at its memory limit accepts them, because it would never have room
#: otherwise.
ENDING = frozenset(
    {OHLC, TICK_ROWS, TRIGGER_EVENTS, NOTIFICATIONS, HISTORY_OUTCOMES, TRIGGER_PROGRESS, DELIVERIES, DEAD_LETTERS}
)

#: Registries of `publish_once`.
REGISTRY_REQUESTS = "requests"  # request id -> Request
REGISTRY_FINALS = "finals"  # request id -> HistoryReadyNotification
REGISTRY_DEAD_LETTERS = "dead_letters"  # part, position and content of a record that was put aside recently
REGISTRY_DELIVERIES = "deliveries"  # names of deliveries whose outcomes are on DELIVERIES

#: Registries whose names must not be forgotten early: too many are refused. In others, the oldest is removed.
REFUSING_REGISTRIES = frozenset({REGISTRY_REQUESTS})

#: Keyed tables.
TABLE_VENUES = "venues"  # venue -> candlewright.Venue, kept fresh by ingestors
RELAY_ASKS = "registry_asks"  # trigger requests that other relays forward to the registry; one partition
RELAY_ANSWERS = "registry_answers"  # its answers to them, and its notices; one partition
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
TABLE_TRIGGER_COSTS = "trigger_costs"  # partition of the trigger query -> TriggerCosts, written by it
TABLE_WANTED = "broker_wanted"  # ticker -> Wanted, what the requests for it add up to, written by the broker
TABLE_REALTIME = "broker_realtime"  # request id -> DataRequest of a realtime request that runs, written by the broker
TABLE_SUBSCRIPTIONS = "subscriptions"  # topic -> request id of the realtime job that the relay asked for
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
READER_TRIGGER_TABLE = "trigger-table"
READER_REVISION_TABLE = "revision-table"
READER_BAR_TABLE = "bar-table"
READER_TICK_TABLE = "tick-table"
READER_DELIVERY_TABLE = "delivery-table"
