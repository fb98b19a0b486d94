/** The bars of one chart in time order, and the one that is still forming. Pure. */
import { openTime } from "../data/times";

export interface Bar {
  /** Open time in seconds since the epoch. */
  time: number;
  open: number;
  high: number;
  low: number;
  close: number;
  volume: number;
  source: string;
  /** Above 0 for a bar that was corrected. */
  revision: number;
  isForming: boolean;
}

export interface Trade {
  time: number;
  price: number;
  size: number;
  side: string;
  id: string;
}

/** Open times between `from` and `to` (exclusive) that have no bar. */
export interface Hole {
  from: number;
  to: number;
}

/** The index of the first bar at or after a time. */
export function indexFrom(bars: readonly { time: number }[], time: number): number {
  let low = 0;
  let high = bars.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle]!.time < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Candles {
  bars: Bar[] = [];

  constructor(readonly period: number) {}

  get first(): Bar | undefined {
    return this.bars[0];
  }

  get last(): Bar | undefined {
    return this.bars[this.bars.length - 1];
  }

  /** Rows replace bars of the same open time, unless these have a newer revision. Returns whether anything changed. */
  merge(rows: Bar[]): boolean {
    if (rows.length === 0) return false;
    if (this.last === undefined || rows[0]!.time > this.last.time) {
      this.bars.push(...rows);
      return true;
    }
    if (rows[rows.length - 1]!.time < this.first!.time) {
      this.bars = [...rows, ...this.bars];
      return true;
    }
    let changed = false;
    for (const row of rows) {
      const at = this.indexFrom(row.time);
      const old = this.bars[at];
      if (old?.time !== row.time) {
        this.bars.splice(at, 0, row);
        changed = true;
      } else if (!isSame(old, row) && row.revision >= old.revision) {
        this.bars[at] = row;
        changed = true;
      }
    }
    return changed;
  }

  /** The index of the first bar at or after a time. */
  indexFrom(time: number): number {
    return indexFrom(this.bars, time);
  }

  at(time: number): Bar | undefined {
    const found = this.bars[this.indexFrom(time)];
    return found?.time === time ? found : undefined;
  }

  holes(): Hole[] {
    const found: Hole[] = [];
    for (let i = 1; i < this.bars.length; i += 1) {
      const expected = this.bars[i - 1]!.time + this.period;
      if (this.bars[i]!.time > expected) found.push({ from: expected, to: this.bars[i]!.time });
    }
    return found;
  }
}

function isSame(a: Bar, b: Bar): boolean {
  return (
    a.open === b.open &&
    a.high === b.high &&
    a.low === b.low &&
    a.close === b.close &&
    a.volume === b.volume &&
    a.revision === b.revision &&
    a.source === b.source
  );
}

/** The bar in progress, from closed shorter bars and from live trades. */
export class Forming {
  bar: Bar | undefined;

  constructor(private readonly period: number) {}

  /** Trades of a closed bar are ignored, because it was published complete. */
  take(trade: Trade, closedUntil: number): void {
    const time = openTime(trade.time, this.period);
    if (time < closedUntil || time < (this.bar?.time ?? 0)) return;
    if (this.bar?.time !== time) this.bar = started(time, trade.price);
    const bar = this.bar;
    bar.high = Math.max(bar.high, trade.price);
    bar.low = Math.min(bar.low, trade.price);
    bar.close = trade.price;
    bar.volume += trade.size;
  }

  /** Adds what the bar contained before the first live trade. */
  precede(earlier: Bar): void {
    const bar = this.bar;
    if (bar === undefined) {
      this.bar = { ...earlier, isForming: true };
    } else if (bar.time === earlier.time) {
      bar.open = earlier.open;
      bar.high = Math.max(bar.high, earlier.high);
      bar.low = Math.min(bar.low, earlier.low);
      bar.volume += earlier.volume;
    }
  }

  closed(time: number): void {
    if (this.bar !== undefined && this.bar.time <= time) this.bar = undefined;
  }
}

function started(time: number, price: number): Bar {
  return { time, open: price, high: price, low: price, close: price, volume: 0, source: "", revision: 0, isForming: true };
}

/** Combines bars into one bar of a longer period, which is still in progress. */
export function combine(bars: Bar[], period: number): Bar | undefined {
  const first = bars[0];
  if (first === undefined) return undefined;
  const bar = { ...started(openTime(first.time, period), first.open) };
  for (const each of bars) {
    bar.high = Math.max(bar.high, each.high);
    bar.low = Math.min(bar.low, each.low);
    bar.close = each.close;
    bar.volume += each.volume;
  }
  return bar;
}
