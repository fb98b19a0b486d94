/**
 * The part of the bars that is passed to the chart: the visible ones and some screens around them. If too many are visible
 * to be distinguished, each place holds a group of bars, so a million bars cost the chart no more than a thousand. Pure.
 */
import { type Bar, indexFrom } from "./candles";

/** A place without a bar is part of a gap. */
export interface Place {
  time: number;
  bar?: Bar;
}

/** The most visible bars drawn individually, about one for each pixel of a wide screen; more are drawn in groups. */
const MOST_PLACES = 2500;
/** Screens on each side of the view. */
const SCREENS_AROUND = 2;
const LEAST_AROUND = 1000;
/** A longer gap takes only one place, because it would push everything else out of view. */
const LONGEST_DRAWN_HOLE = 240;

export class Stretch {
  readonly places: Place[] = [];
  /** The bars of the newest group. */
  #newest: Bar[] = [];

  private constructor(
    private readonly period: number,
    /** The number of bars in one place. */
    readonly level: number,
    /** Whether it reaches to the newest bar. */
    readonly hasLast: boolean,
  ) {}

  /** The stretch for a view that begins and ends at these times. */
  static around(bars: readonly Bar[], period: number, from: number, to: number): Stretch {
    const first = indexFrom(bars, from);
    const end = indexFrom(bars, to);
    const level = levelOf(end - first);
    const around = Math.max(SCREENS_AROUND * (end - first), LEAST_AROUND * level);
    const chosen = bars.slice(Math.max(0, first - around), end + around);
    const made = new Stretch(period, level, end + around >= bars.length);
    let spare = chosen.length;
    for (const bar of chosen) {
      const expected = (made.places.at(-1)?.time ?? bar.time) + made.#step;
      const missing = Math.ceil((bar.time - expected) / made.#step);
      if (missing > 0) {
        const isDrawn = missing <= Math.min(spare, LONGEST_DRAWN_HOLE);
        for (let each = 0; each < (isDrawn ? missing : 1); each += 1) made.places.push({ time: expected + each * made.#step });
        spare -= isDrawn ? missing : 1;
      }
      made.#add(bar);
    }
    return made;
  }

  get #step(): number {
    return this.period * this.level;
  }

  get first(): number {
    return this.places[0]?.time ?? Infinity;
  }

  get last(): number {
    return this.places.at(-1)?.time ?? -Infinity;
  }

  /** Whether it can still be used for a view of these times. */
  fits(bars: readonly Bar[], from: number, to: number): boolean {
    const count = indexFrom(bars, to) - indexFrom(bars, from);
    const inView = count / this.level;
    if (inView > MOST_PLACES || (this.level > 1 && inView < MOST_PLACES / 5)) return false;
    const near = (count * this.period) / 2;
    const needsOlder = this.first > (bars[0]?.time ?? Infinity) && from - near < this.first;
    return !needsOlder && (this.hasLast || to + near <= this.last);
  }

  /** Adds or updates the newest bar and returns its place; undefined if the bar does not follow the others. */
  extend(bar: Bar): Place | undefined {
    const newest = this.#newest.at(-1);
    if (newest !== undefined && (bar.time < newest.time || bar.time > newest.time + this.period)) return undefined;
    return this.#add(bar);
  }

  /** The time at a position of the chart, which may be between two places or outside all of them. */
  timeAt(position: number): number {
    const end = this.places.length - 1;
    const at = Math.max(0, Math.min(Math.floor(position), end - 1));
    const from = this.places[at]!.time;
    const inside = position >= 0 && position <= end && end > 0;
    if (inside) return from + (this.places[at + 1]!.time - from) * (position - at);
    return position < 0 ? this.first + position * this.#step : this.last + (position - end) * this.#step;
  }

  positionOf(time: number): number {
    const end = this.places.length - 1;
    if (time <= this.first) return (time - this.first) / this.#step;
    if (time >= this.last) return end + (time - this.last) / this.#step;
    const at = indexFrom(this.places, time);
    const [before, after] = [this.places[at - 1]!.time, this.places[at]!.time];
    return at - 1 + (time - before) / (after - before);
  }

  /** The place that a time belongs to. */
  placeAt(time: number): Place | undefined {
    if (time < this.first || time >= this.last + this.#step) return undefined;
    return this.places[indexFrom(this.places, time + 0.001) - 1];
  }

  #add(bar: Bar): Place {
    const newest = this.#newest;
    const start = newest[0]?.time;
    if (start === undefined || (bar.time > newest.at(-1)!.time && (this.level === 1 || bar.time >= start + this.#step))) {
      this.#newest = [bar];
      this.places.push({ time: bar.time, bar: { ...bar } });
    } else if (bar.time > newest.at(-1)!.time) {
      newest.push(bar);
      join(this.places.at(-1)!.bar!, bar);
    } else {
      newest[newest.length - 1] = bar;
      this.places[this.places.length - 1] = { time: newest[0]!.time, bar: newest.slice(1).reduce(join, { ...newest[0]! }) };
    }
    return this.places.at(-1)!;
  }
}

function levelOf(inView: number): number {
  let level = 1;
  while (inView / level > MOST_PLACES / 2) level *= 2;
  return level;
}

/** Merges the next bar of a group into `whole`. */
function join(whole: Bar, bar: Bar): Bar {
  whole.high = Math.max(whole.high, bar.high);
  whole.low = Math.min(whole.low, bar.low);
  whole.close = bar.close;
  whole.volume += bar.volume;
  whole.revision = Math.max(whole.revision, bar.revision);
  whole.isForming = bar.isForming;
  return whole;
}
