/** The bars of one chart: stored ones, older ones on request, live ones as they close, and the one in progress. */
import { type Source, StoredRows, barOf, barsTopic, platform, ticksTopic, tradesOf } from "../data/bars";
import type { Message } from "../data/live";
import { openTime, periodName } from "../data/times";
import { Value } from "../data/value";
import { type Bar, Candles, Forming, combine, type Trade } from "./candles";
import { cancelFrame, inNextFrame } from "./frames";

export interface FeedState {
  phase: "loading" | "shown" | "empty" | "failed";
  error?: string;
  /** Why there are no live bars. */
  notLive?: string;
  isLoadingOlder: boolean;
  /** Whether nothing older is stored. */
  isAtBeginning: boolean;
}

export interface FeedEvents {
  /** Redraws everything. */
  reset: (bars: Bar[]) => void;
  /** Older bars were added before the others. */
  older: (bars: Bar[]) => void;
  /** The newest bar, closed or forming. */
  newest: (bar: Bar) => void;
  trades?: (trades: Trade[]) => void;
}

/** More than a wide screen shows, but few enough for a fast first view. */
const FIRST_BARS = 600;
/** A page of older bars: read while the chart is being moved, so it must be quick to process. */
const PAGE_BARS = 2_000;
const MOST_BARS = 10_000;
/** Published bars and trades are in the tables after a second or two. */
const STORED_AFTER_MS = 2500;
const SEAM_TRIES = 6;

export class ChartFeed {
  readonly state = new Value<FeedState>({ phase: "loading", isLoadingOlder: false, isAtBeginning: false });
  readonly candles: Candles;
  readonly #stored: StoredRows;
  readonly #forming: Forming;
  readonly #abort = new AbortController();
  readonly #ends: (() => void)[] = [];
  #firstTrade: Trade | undefined;

  constructor(
    readonly ticker: string,
    readonly period: number,
    private readonly on: FeedEvents,
    private readonly source: Source = platform,
  ) {
    this.#stored = new StoredRows(ticker, source);
    this.candles = new Candles(period);
    this.#forming = new Forming(period);
  }

  async start(): Promise<void> {
    const { signal } = this.#abort;
    this.#ends.push(
      this.source.follow(
        barsTopic(this.ticker, this.period),
        (message) => this.#closed(message),
        () => void this.#catchUp(this.candles.last?.time),
        (notLive) => this.#change({ notLive }),
      ),
      this.source.follow(ticksTopic(this.ticker), (message) => this.#traded(tradesOf(message))),
    );
    try {
      const bars = await this.#stored.newest(this.#periodName, FIRST_BARS, undefined, signal);
      this.candles.merge(bars);
      const isEmpty = this.candles.last === undefined;
      this.#change({ phase: isEmpty ? "empty" : "shown", isAtBeginning: bars.length < FIRST_BARS });
      this.#draw();
    } catch (error) {
      if (!signal.aborted) this.#change({ phase: "failed", error: (error as Error).message });
    }
  }

  /** Reads another page before the first bar; the view calls this whenever the first bar is near. */
  async older(wanted = PAGE_BARS): Promise<void> {
    const { isLoadingOlder, isAtBeginning } = this.state.get();
    const first = this.candles.first;
    if (isLoadingOlder || isAtBeginning || first === undefined) return;
    this.#change({ isLoadingOlder: true });
    const { signal } = this.#abort;
    const limit = Math.round(Math.min(MOST_BARS, Math.max(PAGE_BARS, wanted)));
    try {
      const bars = await this.#stored.newest(this.#periodName, limit, first.time, signal);
      this.candles.merge(bars);
      this.#change({ isLoadingOlder: false, isAtBeginning: bars.length < limit });
      if (bars.length > 0) this.on.older(this.candles.bars);
    } catch {
      // Requested again when the view moves.
      if (!signal.aborted) this.#change({ isLoadingOlder: false });
    }
  }

  /** Reads back to a time that will be shown. */
  async reach(time: number): Promise<void> {
    while (!this.#abort.signal.aborted && !this.state.get().isAtBeginning) {
      const before = this.candles.first?.time;
      if (before === undefined || before <= time) return;
      await this.older((before - time) / this.period + PAGE_BARS);
      if (this.candles.first?.time === before) return;
    }
  }

  /** Reads a range again, after a request stored it. */
  async refresh(start: number, end: number): Promise<void> {
    const bars = await this.#stored.between(this.#periodName, start, end, this.#abort.signal);
    this.candles.merge(bars);
    this.#change({ phase: this.candles.last ? "shown" : "empty", isAtBeginning: false });
    this.#draw();
  }

  close(): void {
    this.#abort.abort();
    cancelFrame(this.#showForming);
    for (const end of this.#ends) end();
  }

  get #periodName(): string {
    return periodName(this.period);
  }

  #closed(message: Message): void {
    const bar = barOf(message);
    if (bar.isForming) return;
    const last = this.candles.last;
    const leavesHole = last !== undefined && bar.time > last.time + this.period;
    this.#forming.closed(bar.time);
    const changed = this.candles.merge([bar]);
    if (last === undefined) {
      this.#change({ phase: "shown" });
      this.#draw();
    } else if (bar.time >= last.time && !leavesHole) {
      this.on.newest(bar);
      this.#showForming();
    } else if (changed) {
      this.#draw();
    }
    if (leavesHole) void this.#mendSeam(last.time + this.period, bar.time);
  }

  /** Reads the bars between the stored ones and the first live one, which reach the tables after a moment. */
  async #mendSeam(from: number, to: number): Promise<void> {
    for (let tries = 0; tries < SEAM_TRIES && !this.#abort.signal.aborted; tries += 1) {
      await this.#catchUp(from);
      if (this.candles.at(to - this.period) !== undefined) return;
      await new Promise((done) => setTimeout(done, STORED_AFTER_MS));
    }
  }

  async #catchUp(from: number | undefined): Promise<void> {
    const { signal } = this.#abort;
    if (this.state.get().phase === "loading") return;
    try {
      const bars =
        from === undefined
          ? await this.#stored.newest(this.#periodName, FIRST_BARS, undefined, signal)
          : await this.#stored.between(this.#periodName, from, undefined, signal);
      if (!signal.aborted && this.candles.merge(bars)) {
        this.#change({ phase: "shown" });
        this.#draw();
      }
    } catch {
      // The next bar, or the next connection, retries.
    }
  }

  #traded(trades: Trade[]): void {
    if (trades.length === 0) return;
    this.on.trades?.(trades);
    const closedUntil = (this.candles.last?.time ?? -Infinity) + this.period;
    for (const trade of trades) this.#forming.take(trade, closedUntil);
    if (this.#firstTrade === undefined) {
      this.#firstTrade = trades[0]!;
      setTimeout(() => void this.#readBeginning(trades[0]!), STORED_AFTER_MS);
    }
    inNextFrame(this.#showForming);
  }

  readonly #showForming = (): void => {
    const bar = this.#forming.bar;
    if (bar === undefined || this.state.get().phase === "loading") return;
    if (this.state.get().phase === "empty") this.#change({ phase: "shown" });
    if (bar.time > (this.candles.last?.time ?? -Infinity)) this.on.newest(bar);
  };

  /** The part of the bar in progress from before this page was opened: closed minutes, and stored trades. */
  async #readBeginning(first: Trade): Promise<void> {
    const { signal } = this.#abort;
    const start = openTime(first.time, this.period);
    const firstId = Number(first.id);
    try {
      const minute = openTime(first.time, Math.min(60, this.period));
      const minutes = minute > start ? await this.#stored.between("1m", start, minute, signal) : [];
      const trades = await this.#stored.trades(minute, first.time + 0.001, signal);
      const before = new Forming(this.period);
      for (const trade of trades) if (!(Number(trade.id) >= firstId)) before.take(trade, -Infinity);
      const bar = combine([...minutes, ...(before.bar ? [before.bar] : [])], this.period);
      if (bar !== undefined && this.#forming.bar?.time === bar.time) {
        this.#forming.precede(bar);
        this.#showForming();
      }
    } catch {
      // The bar then shows only the trades since; it is replaced when it closes.
    }
  }

  #draw(): void {
    this.on.reset(this.candles.bars);
    this.#showForming();
  }

  #change(changes: Partial<FeedState>): void {
    this.state.set({ ...this.state.get(), ...changes });
  }
}
