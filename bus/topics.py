"""Names on the bus that several parts share, and what their records are."""

#: Gateway-visible, fixed by the contract.
TICKS = "ticks"  # TickBatch (or Tick), key = ticker
OHLC = "ohlc"  # OHLCV, key = ticker
TRIGGER_EVENTS = "trigger_events"  # CEPTriggerEvent, key = trigger id
NOTIFICATIONS = "notifications"  # HistoryReadyNotification, key = request id

#: Inner topics (protobuf/records.proto).
REQUESTS = "requests"  # Request, key = request id, one partition
HISTORY = "history"  # HistoryPage, partition of the ticker
HISTORY_OUTCOMES = "history_outcomes"  # HistoryOutcome, partition of the ticker
SNAPSHOTS = "snapshots"  # Snapshot, key = ticker
TICK_MARKS = "tick_marks"  # TickMark, partition of the ticker, key = ticker
TRIGGER_CONTROLS = "trigger_controls"  # TriggerControl, key = trigger id, one partition
TRIGGER_PROGRESS = "trigger_progress"  # TriggerProgress, one partition

#: Registries of `publish_once`.
REGISTRY_REQUESTS = "requests"  # request id -> Request
REGISTRY_FINALS = "finals"  # request id -> HistoryReadyNotification

#: Keyed tables.
TABLE_VENUES = "venues"  # venue -> candlewright.Venue, kept fresh by ingestors
TABLE_REQUEST_STATES = "request_states"  # request id -> RequestState (broker's progress)
TABLE_TRIGGERS = "triggers"  # trigger id -> TriggerEntry, written by the relay
TABLE_JOINT_TRIGGERS = "joint_triggers"  # ids of triggers that take rows of several bus partitions together
TABLE_WANTED = "broker_wanted"  # ticker -> Wanted, what the requests for it add up to, written by the broker
TABLE_SUBSCRIPTIONS = "subscriptions"  # topic -> request id of the realtime job that the relay asked for

#: A realtime request that a relay makes for the subscribers of a topic has the id `subscription:{topic}:{uuid}`.
SUBSCRIPTION_PREFIX = "subscription:"

#: Readers that hold records (Bus.hold).
READER_BROKER = "broker"
READER_HISTORY_WRITER = "history-writer"
READER_BAR_MAKER = "bar-maker"
READER_TRIGGERS = "triggers"
READER_TRIGGER_TABLE = "trigger-table"
