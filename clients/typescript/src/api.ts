// Generated from the API's document by `python -m console.typescript`; a test compares them. Do not edit.

/** How the close had changed, as a fraction, this many bars after the events. */
export interface AfterBars {
  bars: number;
  count: number;
  mean: number | null;
  median: number | null;
  /** Share of the events after which the close was higher. */
  rose: number | null;
}

/** `tickers` must have one ticker. Reads bars with the parameter `period_seconds`, otherwise trades. */
export interface Attempt {
  sql: string;
  /** Empty = every active ticker. */
  tickers?: string[];
  /** Values for `:name`, and options such as `period_seconds`. */
  parameters?: Record<string, string | number | boolean>;
  ticker?: string | null;
  since?: string | null;
  /** Over bars as they were published, corrections included. */
  as_seen?: boolean;
  /** The maximum number of rows in the answer. */
  limit?: number;
}

/** `nearest`: where it failed, or came nearest to advancing; `awaits`: what the next row will be tested as. */
export interface AttemptBody {
  /** matched, failed, expired or waiting. */
  outcome: string;
  key: Record<string, unknown>;
  start: string | null;
  /** The first and the last rows that it took. */
  rows: RowBody[];
  taken: number;
  /** The minimum number of rows that a match still needs. */
  missing: number;
  nearest: TestedBody[];
  awaits: TestedBody[];
  /** Whether it is a match unless the next row continues it. */
  can_end: boolean;
  deadline: string | null;
}

/** A closed bar, or with a `revision` above 0 a corrected one. */
export interface BarMessage {
  topic: string;
  sequence: number;
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  open_time: string;
  open: number | null;
  high: number | null;
  low: number | null;
  close: number | null;
  volume: number | null;
  quote_volume: number | null;
  trade_count: number | null;
  complete: boolean;
  revision: number;
  source: string;
}

/** A stored candle, as a row of `lake.market.ohlc`. */
export interface BarRow {
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  open_time: string;
  open: number | null;
  high: number | null;
  low: number | null;
  close: number | null;
  volume: number | null;
  quote_volume: number | null;
  trade_count: number | null;
  source: string | null;
  complete: boolean | null;
  updated_at?: string | null;
  revision?: number | null;
  known_at?: string | null;
}

/** Candles, and what is missing in the range. */
export interface Bars {
  rows: BarRow[];
  /** Ranges for which the venue has no candles. */
  holes: Span[];
  /** Ranges for which nothing is stored. */
  unknown: Span[];
}

/** The text is valid. */
export interface Checked {
  columns: Column[];
  warnings: string[];
}

/** Why the server ends the stream. */
export interface ClosedMessage {
  code: "too_slow" | "stopping";
  reason: string;
}

export interface Column {
  name: string;
  type: string;
}

export interface ColumnEntry {
  name: string;
  text: string;
  type: string;
}

export interface ConditionBody {
  text: string;
  /** Null: unknown because of a NULL, or of a row that has not arrived. */
  holds: boolean | null;
  operands: OperandBody[];
  /** AND, OR, NOT, or empty. */
  connective: string;
  parts: ConditionBody[];
}

export interface Coverage {
  rows: CoverageRow[];
}

/** A finished request, as a row of `lake.market.coverage`. */
export interface CoverageRow {
  request_id: string;
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  start: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  end: string;
  expected: number | null;
  got: number | null;
  holes: Span[] | null;
  status: string | null;
  closed_until: string | null;
}

export interface DestinationRow {
  /** The name that a trigger's parameter `alert_to` uses. */
  name: string;
  /** The scheme of its address, such as `https` or `ntfy`; the rest is secret. */
  service: string;
}

/** The settings `[alerts.NAME]`. */
export interface Destinations {
  destinations: DestinationRow[];
}

/** Why this topic will have no messages. */
export interface ErrorMessage {
  topic: string;
  code: string;
  reason: string;
}

export interface EventBody {
  sequence: number;
  event_id: string;
  trigger_id: string;
  ticker: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  time: string;
  match_number: number | null;
  columns: string[];
  column_types: string[];
  rows: Array<Record<string, unknown>>;
}

/** `next_sequence`: where to continue. */
export interface EventList {
  events: EventBody[];
  next_sequence: number;
}

/** A trigger's event. */
export interface EventMessage {
  sequence: number;
  event_id: string;
  trigger_id: string;
  ticker: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  time: string;
  match_number: number | null;
  columns: string[];
  column_types: string[];
  rows: Array<Record<string, unknown>>;
  topic: string;
}

/** The result of running its text over stored rows: `fired` counts the rows returned. */
export interface Explained {
  trigger_id: string;
  tickers: string[];
  over: string;
  views: ViewReadersBody[];
  rows: number;
  first: string | null;
  last: string | null;
  fired: number;
  stages: StageBody[];
}

/** How a request ended. */
export interface Final {
  request_id: string;
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  start: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  end: string;
  /** OK, NOT_FOUND, ERROR or TIMEOUT. */
  status: string;
  error_message: string;
  table: string;
  row_count: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  completed_at: string;
}

/** How a history request ended. */
export interface FinalMessage {
  request_id: string;
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  start: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  end: string;
  /** OK, NOT_FOUND, ERROR or TIMEOUT. */
  status: string;
  error_message: string;
  table: string;
  row_count: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  completed_at: string;
  topic: string;
}

export interface FunctionEntry {
  name: string;
  /** scalar, aggregate, indicator, candle, window or pattern. */
  kind: string;
  signature: string;
  text: string;
  /** How NULLs are handled. */
  nulls: string;
  /** `yes`, or where it can run over a stream. */
  stream: string;
  /** For a scalar function a condition that is true, otherwise a column of a query. */
  example: string;
}

/** Numbers that the platform no longer keeps; the stream continues after them. */
export interface GapMessage {
  topic: string;
  first: number;
  last: number;
  reason: string;
}

/** Trades that a stream missed, as a row of `lake.market.gaps`. */
export interface GapRow {
  ticker: string;
  from_trade_id: string | null;
  to_trade_id: string | null;
  from_ts: string | null;
  to_ts: string | null;
  missing: number | null;
  repaired: boolean | null;
  reason: string | null;
  detected_at: string | null;
}

export interface Gaps {
  rows: GapRow[];
}

export interface GrammarForm {
  /** Its keywords. */
  name: string;
  form: string;
  text: string;
  /** A complete text. */
  example: string;
}

export interface Language {
  keywords: string[];
  types: string[];
  /** The form in the grammar, with keywords in capitals. */
  forms: GrammarForm[];
  functions: FunctionEntry[];
  /** Parameters with a special meaning. */
  parameters: NamedText[];
  /** Views that need not be registered. */
  views: NamedText[];
  /** Columns by table. */
  tables: Record<string, ColumnEntry[]>;
}

export interface MarketRow {
  ticker: string;
  venue: string;
  symbol: string;
  market_id: string;
  is_active: boolean;
}

/** `total`: how many match; the first `limit` of them are here. */
export interface Markets {
  markets: MarketRow[];
  total: number;
}

/** Measurements over stored rows; the state is that at their end. */
export interface MeasuredBody {
  tickers: string[];
  rows: number;
  span_seconds: number;
  events: number;
  cpu_seconds: number;
  state_bytes: number;
  partitions: number;
  kept_rows: number;
  /** The average rate at which the rows arrived. */
  rows_per_second: number;
  /** The rate at which the engine processes them. */
  rows_per_cpu_second: number;
  /** The share of one core needed at the rate at which the rows arrived. */
  core_share: number;
}

export interface NamedText {
  name: string;
  text: string;
}

/** Candles to fetch into the table. Without `request_id` the same range is the same request, unless a repetition can bring more: after a failure, or if candles had not closed. */
export interface NewRequest {
  /** As `BASE/QUOTE.VENUE`. */
  ticker: string;
  /** As `1m`, `1h`, `1d`, or seconds. */
  period?: string;
  /** ISO 8601, UTC where no zone is given; or nanoseconds since the epoch. */
  start: string;
  /** ISO 8601, UTC where no zone is given; or nanoseconds since the epoch. */
  end: string;
  limit?: number | null;
  request_id?: string | null;
  /** Request the range from the exchange even if the table already proves it complete. */
  refresh?: boolean;
}

/** Without `trigger_id`, the id is derived from the content. */
export interface NewTrigger {
  sql: string;
  /** Empty = every active ticker. */
  tickers?: string[];
  /** Values for `:name`, and options such as `period_seconds`. */
  parameters?: Record<string, string | number | boolean>;
  trigger_id?: string | null;
}

export interface OperandBody {
  text: string;
  value: string | number | boolean | null;
  /** False if it depends on a row that has not arrived. */
  is_known: boolean;
}

export interface PlanBody {
  reads: string[];
  together: string;
  steps: PlanStepBody[];
  fires: string[];
  measured: MeasuredBody | null;
  /** The rows that were used. */
  over: string;
  /** Why nothing was measured. */
  note: string;
  warnings: string[];
}

/** `keeps`: its state; `bound`: what bounds that; `fires`: when its rows come. */
export interface PlanStepBody {
  kind: string;
  text: string;
  keeps: string;
  bound: string;
  fires: string;
}

/** A candle whose close moved unusually far. */
export interface PriceJump {
  /** ISO 8601 in UTC, with nanoseconds. */
  time: string;
  /** Relative change of the close since the candle before. */
  move: number | null;
}

/** An error, as defined in RFC 9457. */
export interface ProblemBody {
  type: string;
  title: string;
  status: number;
  /** A sentence for people. */
  detail: string;
  [name: string]: unknown;
}

/** Counts are of candles. `problems` has a sentence for each kind of problem found. */
export interface QualityBody {
  ticker: string;
  period_seconds: number;
  rows: number;
  first: string | null;
  last: string | null;
  problems: string[];
  /** A finished request found that the venue has none. */
  holes: number;
  /** Missing between the first and the last, for an unknown reason. */
  unknown: number;
  /** Known to lack trades. */
  incomplete: number;
  duplicates: number;
  /** With impossible values. */
  malformed: number;
  without_trades: number;
  longest_without_trades: number;
  /** Corrected after their first publication. */
  revised: number;
  sources: Record<string, number>;
  /** The ten largest. */
  outliers: PriceJump[];
  outlier_count: number;
  /** Gaps in live trades that are not repaired. */
  gaps_open: number;
  gaps_repaired: number;
  /** Null unless requested. */
  trades: TradesCompared | null;
  delay_ms: TradeDelay | null;
  /** The first 1,000. */
  unknown_ranges: Span[];
  days: QualityDay[];
}

/** A UTC day: stored candles, candles that the venue does not have, and candles of a complete day. */
export interface QualityDay {
  day: string;
  got: number;
  holes: number;
  expected: number;
}

export interface QueryText {
  /** DuckDB's dialect over `ohlc`, `ohlc_revisions`, `ticks`, `trigger_events`, `gaps`, `coverage` and `deliveries`, with or without `lake.market.` in front. A text that DuckDB refuses, with words of the trigger language (MATCH_RECOGNIZE, an indicator, BARS BY, a view …), is in that language. JSON and CSV have intervals, binary values and unions as DuckDB's text; CSV has nested values as JSON. */
  sql: string;
  /** The first N rows, at most `console.sql_rows`. */
  limit?: number;
}

/** The state of a request. */
export interface RequestBody {
  request_id: string;
  /** queued, running, done or unknown. */
  state: string;
  done_candles: number;
  expected_candles: number;
  /** What an unfinished request is waiting for. */
  reason: string;
  /** Start of the candles that were left out because they had not closed. */
  closed_until: string | null;
  notification: Final | null;
}

/** An entry in the list of requests. */
export interface RequestRow {
  request_id: string;
  state: string;
  ticker: string | null;
  period: string | null;
  start: string | null;
  end: string | null;
  done_candles: number | null;
  expected_candles: number | null;
  status: string | null;
  holes: number | null;
  closed_until: string | null;
  /** What an unfinished request is waiting for. */
  reason: string | null;
}

export interface Requests {
  requests: RequestRow[];
}

/** Corrected candles with their newest revision, in time order; at most the newest 5,000. */
export interface Revised {
  rows: RevisedRow[];
}

export interface RevisedRow {
  /** ISO 8601 in UTC, with nanoseconds. */
  open_time: string;
  revision: number;
}

export interface RowBody {
  time: string | null;
  variable: string;
  /** Columns that the conditions read. */
  values: Record<string, unknown>;
}

export interface Rows {
  rows: BarRow[];
}

/** The stored candles of a ticker and period. */
export interface Series {
  ticker: string;
  period_seconds: number;
  /** ISO 8601 in UTC, with nanoseconds. */
  first: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  last: string;
  rows: number;
}

export interface SignIn {
  /** The token from `candlewright keys new`. */
  token: string;
}

/** The newest prices. */
export interface SnapshotMessage {
  topic: string;
  sequence: number;
  ticker: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  exchange_time: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  received_at: string;
  last: number | null;
  bid: number | null;
  ask: number | null;
  bid_size: number | null;
  ask_size: number | null;
  volume_24h: number | null;
}

/** Half-open: `end` is excluded. */
export interface Span {
  /** ISO 8601 in UTC, with nanoseconds. */
  start: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  end: string;
}

export interface SqlColumn {
  name: string;
  type: string;
}

export interface SqlRows {
  rows: Array<Record<string, unknown>>;
  columns: SqlColumn[];
  /** Whether there are more rows than `limit`. */
  truncated: boolean;
}

export interface StageBody {
  /** WHERE, HAVING, QUALIFY or MATCH_RECOGNIZE. */
  kind: string;
  text: string;
  rows: number;
  passed: number;
  failed: number;
  examined: number;
  attempts: AttemptBody[];
}

/** The supervisor's `/status`, with the caller's role. */
export interface Status {
  version: string;
  /** The caller's permissions: `viewer` reads and tries, `operator` may also make changes. */
  role: string;
  /** The name of the caller's token. */
  signed_in_as: string | null;
  ready: boolean;
  healthy: boolean;
  /** Every process of the platform; empty if no supervisor runs them. */
  parts: Record<string, unknown>;
  [name: string]: unknown;
}

export interface StoredBars {
  series: Series[];
}

/** A row of `lake.market.trigger_events`. */
export interface StoredEvent {
  event_id: string;
  trigger_id: string;
  ticker: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  time: string;
  rows: Array<Record<string, unknown>>;
}

/** Ordered by time. */
export interface StoredEvents {
  events: StoredEvent[];
}

/** A trigger was stopped. */
export interface SuspendedMessage {
  topic: string;
  trigger_id: string;
  reason: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  registered_at: string;
}

/** A row tested as a variable. Without `row`: the next row; without `condition`: any row is accepted. */
export interface TestedBody {
  variable: string;
  row: RowBody | null;
  condition: ConditionBody | null;
}

export interface Tick {
  sequence: number;
  trade_id: string;
  /** The exchange's time. */
  timestamp: string;
  price: number | null;
  size: number | null;
  side: "buy" | "sell" | "unknown";
  /** ISO 8601 in UTC, with nanoseconds. */
  received_at: string;
}

/** A stored trade, as a row of `lake.market.ticks`. */
export interface TickRow {
  ticker: string;
  trade_id: string;
  /** ISO 8601 in UTC, with nanoseconds. */
  ts: string;
  ts_ns: number;
  price: number | null;
  size: number | null;
  side: string | null;
  received_at: string | null;
}

/** The first `limit` trades of the range. */
export interface Ticks {
  rows: TickRow[];
}

/** Trades in order; `sequence` is that of the first. */
export interface TicksMessage {
  topic: string;
  sequence: number;
  ticker: string;
  ticks: Tick[];
}

/** From a trade to its receipt, in milliseconds. */
export interface TradeDelay {
  median: number;
  p99: number;
}

/** The candles of the exchange, compared with bars made from the stored trades. */
export interface TradesCompared {
  compared: number;
  equal: number;
  price_differs: number;
  volume_differs: number;
  /** The largest difference, relative to the candle's volume. */
  volume_off: number | null;
}

export interface Tried {
  columns: Column[];
  /** The first `limit` rows of the result. */
  rows: Array<Record<string, unknown>>;
  total_rows: number;
  /** Event time of each event. */
  fired_at: string[];
  /** Events that cooldown_seconds suppresses. */
  suppressed: number;
  /** What was read. */
  over: string;
  input_rows: number;
  first: string | null;
  last: string | null;
  /** Empty for texts over trades. */
  after: AfterBars[];
}

export interface TriggerBody {
  trigger_id: string;
  sql: string;
  tickers: string[];
  parameters: Record<string, string>;
  /** active or suspended. */
  state: string;
  /** Why it is suspended. */
  reason: string;
  is_starting: boolean;
  /** ISO 8601 in UTC, with nanoseconds. */
  registered_at: string;
  events: number;
  /** Warnings about its text; only in the answer to its registration. */
  warnings?: string[];
}

export interface TriggerList {
  triggers: TriggerBody[];
}

export interface TriggerText {
  sql: string;
  /** Empty = every active ticker. */
  tickers?: string[];
  /** Values for `:name`, and options such as `period_seconds`. */
  parameters?: Record<string, string | number | boolean>;
}

export interface VenueRow {
  venue: string;
  period_seconds: number[];
  markets: number;
  /** How many candles back its history reaches; 0 = to the listing. */
  depth_candles: number;
  /** Whether an ingestor serves it now. */
  is_live: boolean;
  updated_at: string | null;
}

export interface Venues {
  venues: VenueRow[];
}

/** A view that is computed once for all triggers that read it. */
export interface ViewReadersBody {
  name: string;
  /** How many triggers read it. */
  triggers: number;
}

/** What a live event holds, by its kind. */
export interface LiveEvents {
  ticks: TicksMessage;
  bar: BarMessage;
  snapshot: SnapshotMessage;
  event: EventMessage;
  final: FinalMessage;
  gap: GapMessage;
  suspended: SuspendedMessage;
  error: ErrorMessage;
  closed: ClosedMessage;
}

/** What each call is given, and what it answers. */
export interface Calls {
  /** The state of every part of the platform. */
  get_status: { given: Record<never, never>; answer: Status };
  /** Store a token in a cookie, for a browser. */
  sign_in: { given: SignIn; answer: void };
  /** Delete the cookie. */
  sign_out: { given: Record<never, never>; answer: void };
  /** Fetch candles into the table. */
  add_history: { given: NewRequest; answer: RequestBody };
  /** Unfinished requests, then finished ones in the order in which they ended. */
  list_history: { given: { limit?: number }; answer: Requests };
  /** The state of a request. */
  get_history: { given: { request_id: string }; answer: RequestBody };
  /** Cancel a request. */
  cancel_history: { given: { request_id: string }; answer: RequestBody };
  /** The rows of a finished request. */
  get_history_rows: { given: { request_id: string }; answer: Rows };
  /** Stored candles. */
  list_bars: { given: { ticker: string; period?: string; start?: string | null; end?: string | null; limit?: number; order?: "first" | "last" | null; as_of?: string | null }; answer: Bars };
  /** Stored trades. */
  list_ticks: { given: { ticker: string; start?: string | null; end?: string | null; limit?: number }; answer: Ticks };
  /** Which candles are stored. */
  list_stored: { given: Record<never, never>; answer: StoredBars };
  /** Finished requests of a ticker, and the holes that they found. */
  list_coverage: { given: { ticker: string }; answer: Coverage };
  /** Trades of a ticker that its stream missed. */
  list_gaps: { given: { ticker: string }; answer: Gaps };
  /** Candles of a ticker and period that were corrected. */
  list_revised: { given: { ticker: string; period?: string }; answer: Revised };
  /** The venues that can be requested. */
  list_venues: { given: Record<never, never>; answer: Venues };
  /** Markets of one or all venues, by part of their ticker. */
  list_markets: { given: { venue?: string | null; search?: string; limit?: number }; answer: Markets };
  /** The quality of stored candles. */
  get_quality: { given: { ticker: string; period?: string; start?: string | null; end?: string | null; trades?: boolean }; answer: QualityBody };
  /** Registered triggers. */
  list_triggers: { given: Record<never, never>; answer: TriggerList };
  /** Register a trigger. */
  add_trigger: { given: NewTrigger; answer: TriggerBody };
  /** Check a text without registering it. */
  check_trigger: { given: TriggerText; answer: Checked };
  /** Run a text over the stored rows of a ticker. */
  try_trigger: { given: Attempt; answer: Tried };
  /** One trigger. */
  get_trigger: { given: { trigger_id: string }; answer: TriggerBody };
  /** Remove a trigger. */
  remove_trigger: { given: { trigger_id: string }; answer: void };
  /** What state a text keeps, when it fires, and what it costs over the last stored hour of its tickers. */
  plan_trigger_text: { given: TriggerText; answer: PlanBody };
  /** What state a trigger keeps, when it fires, and what it costs over the last stored hour of its tickers. */
  plan_trigger: { given: { trigger_id: string }; answer: PlanBody };
  /** How close a trigger came to firing, over stored rows. */
  explain_trigger: { given: { trigger_id: string; at?: string | null; ticker?: string | null; attempts?: number }; answer: Explained };
  /** Events of a trigger that are still on the bus. */
  list_trigger_events: { given: { trigger_id: string; from_sequence?: number; limit?: number }; answer: EventList };
  /** Stored events, also of removed triggers. */
  list_events: { given: { trigger?: string | null; ticker?: string | null; removed?: boolean; start?: string | null; end?: string | null; limit?: number }; answer: StoredEvents };
  /** Destinations of alerts. */
  list_alerts: { given: Record<never, never>; answer: Destinations };
  /** The trigger language, and columns of the tables. */
  get_language: { given: Record<never, never>; answer: Language };
  /** Query the tables. */
  query_sql: { given: QueryText; answer: SqlRows };
}

/** Calls that can also return their rows as CSV or Arrow. */
export type Tabular = "get_history_rows" | "list_bars" | "list_ticks" | "query_sql";

export const CALLS: Record<keyof Calls, { method: string; path: string }> = {
  get_status: { method: "GET", path: "/status" },
  sign_in: { method: "POST", path: "/session" },
  sign_out: { method: "DELETE", path: "/session" },
  add_history: { method: "POST", path: "/history" },
  list_history: { method: "GET", path: "/history" },
  get_history: { method: "GET", path: "/history/{request_id}" },
  cancel_history: { method: "DELETE", path: "/history/{request_id}" },
  get_history_rows: { method: "GET", path: "/history/{request_id}/rows" },
  list_bars: { method: "GET", path: "/bars" },
  list_ticks: { method: "GET", path: "/ticks" },
  list_stored: { method: "GET", path: "/stored" },
  list_coverage: { method: "GET", path: "/coverage" },
  list_gaps: { method: "GET", path: "/gaps" },
  list_revised: { method: "GET", path: "/revisions" },
  list_venues: { method: "GET", path: "/venues" },
  list_markets: { method: "GET", path: "/markets" },
  get_quality: { method: "GET", path: "/quality" },
  list_triggers: { method: "GET", path: "/triggers" },
  add_trigger: { method: "POST", path: "/triggers" },
  check_trigger: { method: "POST", path: "/triggers/check" },
  try_trigger: { method: "POST", path: "/triggers/try" },
  get_trigger: { method: "GET", path: "/triggers/{trigger_id}" },
  remove_trigger: { method: "DELETE", path: "/triggers/{trigger_id}" },
  plan_trigger_text: { method: "POST", path: "/triggers/plan" },
  plan_trigger: { method: "GET", path: "/triggers/{trigger_id}/plan" },
  explain_trigger: { method: "GET", path: "/triggers/{trigger_id}/explain" },
  list_trigger_events: { method: "GET", path: "/triggers/{trigger_id}/events" },
  list_events: { method: "GET", path: "/events" },
  list_alerts: { method: "GET", path: "/alerts" },
  get_language: { method: "GET", path: "/language" },
  query_sql: { method: "POST", path: "/sql" },
};
