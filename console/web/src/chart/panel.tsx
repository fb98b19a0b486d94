/** One chart with its toolbar, legend and state. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fetchHistory } from "../data/bars";
import { eventsOf, followEvents, type TriggerEvent } from "../data/events";
import { periodsToChoose, storedBars, type Stored } from "../data/markets";
import { counted, percent, prices, whole } from "../data/numbers";
import { useMayChange } from "../data/platform";
import { moment, now, openTime, periodName, periodSeconds, span } from "../data/times";
import { useValue, Value } from "../data/value";
import { revisedBars, tradeGaps, type Gap } from "../data/truth";
import { downloadBlob } from "../data/download";
import { Icon } from "../shell/icons";
import { useShortcuts } from "../shell/keys";
import { qualityOf } from "../shell/router";
import { theme } from "../shell/theme";
import type { Band } from "./bands";
import type { Bar, Trade } from "./candles";
import { ChartFeed } from "./feed";
import { chartKeys } from "./keys";
import { Legend, spokenOf } from "./legend";
import { type Mark, labelOf } from "./marks";
import { ChartView } from "./view";

interface Props {
  ticker: string;
  period: string;
  /** A time to bring into view. */
  at?: number;
  /** One of several charts, without its own toolbar. */
  isSmall?: boolean;
  choosePeriod: (period: string) => void;
  trades?: (trades: Trade[]) => void;
  events?: (events: TriggerEvent[]) => void;
  close?: () => void;
}

const MOST_MARKS = 2000;

export function ChartPanel(props: Props) {
  const { ticker, period, at } = props;
  const size = periodSeconds(period);
  const box = useRef<HTMLDivElement>(null);
  const parts = useMemo(() => new Parts(ticker, size), [ticker, size]);
  const state = useValue(parts.feed.state);
  const shown = useValue(parts.legend);
  const isLogarithmic = useValue(logarithmic);
  const stored = useStored(ticker);

  parts.trades = props.trades;
  parts.events = props.events;
  useEffect(() => {
    parts.open(box.current!, at);
    return () => parts.close();
  }, [parts]);
  useEffect(() => logarithmic.follow((on) => parts.view?.setLogarithmic(on)), [parts]);
  useEffect(() => theme.follow(() => requestAnimationFrame(() => parts.view?.paint())), [parts]);

  const section = useRef<HTMLElement>(null);
  useShortcuts(
    [
      ...chartKeys(() => parts.view, (bars) => parts.step(bars), () => parts.unpoint()),
      { keys: "l", text: "Logarithmic scale", run: () => logarithmic.set(!logarithmic.get()) },
      { keys: "p", text: "Save as PNG", run: () => parts.save() },
      // Of several charts, the focused one.
    ].map((each) => (props.isSmall ? { ...each, within: section } : each)),
    [parts, props.isSmall],
  );

  const periods = periodsToChoose(stored, period);
  return (
    <section ref={section} class={`chart-panel${props.isSmall ? " small" : ""}`} aria-label={`${ticker}, ${period}`}>
      <div class="chart-head">
        <h1 class="ticker">
          {ticker.replace(/\.[A-Z0-9_]+$/, "")}
          <small>{ticker.split(".").pop()}</small>
        </h1>
        <LastPrice parts={parts} />
        {!props.isSmall && (
          <div class="segments" role="group" aria-label="Period">
            {periods.map((each) => (
              <button key={each} type="button" aria-pressed={each === period} onClick={() => props.choosePeriod(each)}>
                {each}
              </button>
            ))}
          </div>
        )}
        <div class="spring" />
        {!props.isSmall && (
          <>
            <a class="button quiet wide-only" href={qualityOf(ticker, period)}>
              Quality
            </a>
            <button
              class="quiet"
              type="button"
              aria-pressed={isLogarithmic}
              title="Logarithmic scale (l)"
              onClick={() => logarithmic.set(!isLogarithmic)}
            >
              Log
            </button>
            <button class="quiet square" type="button" title="To the newest bar (End)" onClick={() => parts.view?.toNewest()}>
              <Icon name="latest" />
              <span class="unseen">To the newest bar</span>
            </button>
            <button class="quiet square" type="button" title="Save as PNG (p)" onClick={() => parts.save()}>
              <Icon name="picture" />
              <span class="unseen">Save as PNG</span>
            </button>
          </>
        )}
        {props.close && (
          <button class="quiet square" type="button" onClick={props.close}>
            <Icon name="close" />
            <span class="unseen">Close {ticker}</span>
          </button>
        )}
      </div>
      <div class="chart-box">
        <div class="canvas" ref={box} role="img" tabIndex={0} aria-label={describe(ticker, period, parts)} />
        <p class="unseen" role="status">
          {shown.spoken}
        </p>
        <Legend bar={shown.bar} note={shown.note} />
        {state.phase === "loading" && <div class="chart-cover" aria-busy="true" />}
        {state.phase === "failed" && (
          <div class="chart-cover">
            <p class="bad">{state.error}</p>
            <button type="button" onClick={() => void parts.feed.start()}>
              Try again
            </button>
          </div>
        )}
        {state.phase === "empty" && <Empty parts={parts} period={period} />}
        {state.phase === "shown" && state.isAtBeginning && !props.isSmall && <Earlier parts={parts} period={period} />}
        {state.notLive && <p class="not-live">Not live: {state.notLive}</p>}
        {state.isLoadingOlder && <div class="older" aria-live="polite">Reading older bars</div>}
        <a class="attribution" href="https://www.tradingview.com/" title="Charts by TradingView Lightweight Charts">
          Charts by TradingView
        </a>
      </div>
    </section>
  );
}

const logarithmic = new Value(localStorage.getItem("log") === "on");
logarithmic.follow((on) => localStorage.setItem("log", on ? "on" : "off"));

/** The drawn chart and its feed, which exist while ticker and period stay the same. */
class Parts {
  view: ChartView | undefined;
  readonly feed: ChartFeed;
  readonly legend = new Value<{ bar?: Bar; note: string; spoken?: string }>({ note: "" });
  readonly newest = new Value<Bar | undefined>(undefined);
  trades: ((trades: Trade[]) => void) | undefined;
  events: ((events: TriggerEvent[]) => void) | undefined;
  #known: TriggerEvent[] = [];
  #gaps: Gap[] = [];
  #revised = new Map<number, number>();
  #isFirst = true;
  #ends: (() => void)[] = [];
  #at: number | undefined;

  constructor(
    readonly ticker: string,
    readonly period: number,
  ) {
    this.feed = new ChartFeed(ticker, period, {
      reset: (bars) => this.#reset(bars),
      older: (bars) => this.#older(bars),
      newest: (bar) => this.#newest(bar),
      trades: (trades) => this.trades?.(trades),
    });
  }

  open(element: HTMLElement, at: number | undefined): void {
    this.#at = at;
    this.view = new ChartView(element, this.period, {
      crosshair: (time) => this.#point(time),
      older: (inView) => void this.feed.older(inView),
    });
    this.view.setLogarithmic(logarithmic.get());
    // Marks and bands are read after the bars, because reading them together would delay the bars.
    void this.feed.start().then(() => this.view && this.#readMarks());
  }

  #readMarks(): void {
    this.#ends.push(
      followEvents(this.ticker, (events) => {
        this.#known = eventsOf(this.#known, events).slice(-MOST_MARKS);
        this.events?.(this.#known);
        this.#mark();
      }),
    );
    void tradeGaps(this.ticker).then((gaps) => {
      this.#gaps = gaps;
      this.#shade();
    });
    void revisedBars(this.ticker, this.period).then((revised) => {
      this.#revised = revised;
      this.#mark();
    });
  }

  close(): void {
    this.feed.close();
    for (const end of this.#ends) end();
    this.view?.close();
    this.view = undefined;
  }

  /** The visible part as a PNG, with a title. */
  save(): void {
    const view = this.view;
    const range = view?.visible();
    if (view === undefined || range === undefined) return;
    const name = periodName(this.period);
    const title = `${this.ticker}  ${name}  ${moment(range.from)} to ${moment(range.to)} UTC`;
    titled(view.picture(), title, view.color("panel"), view.color("muted")).toBlob((blob) => {
      if (blob !== null) downloadBlob(`${this.ticker.replaceAll("/", "-")}-${name}.png`, blob);
    });
  }

  #reset(bars: Bar[]): void {
    this.view?.set(bars);
    this.newest.set(bars[bars.length - 1]);
    this.#shade();
    this.#mark();
    if (this.#isFirst && bars.length > 0) {
      this.#isFirst = false;
      if (this.#at === undefined) this.view?.toNewest();
      else void this.#goTo(this.#at);
    }
    this.#point(undefined);
  }

  #older(bars: Bar[]): void {
    this.view?.extend(bars);
    this.#shade();
    this.#mark();
  }

  async #goTo(time: number): Promise<void> {
    await this.feed.reach(time - 200 * this.period);
    this.view?.show(time - 40 * this.period, time + 40 * this.period);
  }

  #newest(bar: Bar): void {
    this.view?.update(bar);
    this.newest.set({ ...bar });
    if (bar.revision > 0) this.#mark();
    this.#point(undefined);
  }

  /** Moves the crosshair by this many bars; a screen reader describes the bar there. */
  step(bars: number): void {
    const time = this.view?.point(bars);
    const bar = time === undefined ? undefined : this.view?.barAt(time);
    if (bar === undefined) return;
    this.#point(time);
    this.legend.set({ ...this.legend.get(), spoken: spokenOf(bar) });
  }

  unpoint(): void {
    this.view?.unpoint();
    this.#pointed = undefined;
    this.#point(undefined);
  }

  #pointed: number | undefined;

  #point(time: number | undefined): void {
    if (time !== undefined || this.#pointed !== undefined) this.#pointed = time;
    const bar = this.#pointed === undefined ? this.newest.get() : this.view?.barAt(this.#pointed);
    const band = this.#pointed === undefined ? undefined : this.view?.bandAt(this.#pointed);
    this.legend.set({ ...this.legend.get(), bar, note: band?.text ?? "" });
  }

  #shade(): void {
    const view = this.view;
    if (view === undefined) return;
    const holes = this.feed.candles.holes().map(
      ({ from, to }): Band => ({
        from,
        to,
        color: view.color("warn"),
        text: `no bars for ${span(to - from)}: ${moment(from)} to ${moment(to)}`,
      }),
    );
    const gaps = this.#gaps.map(
      ({ from, to, missing, isRepaired, reason }): Band => ({
        from: openTime(from, this.period),
        to: openTime(to, this.period) + this.period,
        color: view.color(isRepaired ? "info" : "down"),
        hatched: true,
        text: gapText(missing, isRepaired, reason),
      }),
    );
    view.setBands([...holes, ...gaps]);
  }

  #mark(): void {
    const view = this.view;
    const first = this.feed.candles.first;
    if (view === undefined || first === undefined) return;
    const marks: Mark[] = this.#known.map((event) => ({
      time: openTime(event.time, this.period),
      text: labelOf(event.trigger),
      color: view.color("accent"),
    }));
    const revised = new Map(this.#revised);
    for (const bar of this.feed.candles.bars) if (bar.revision > 0) revised.set(bar.time, bar.revision);
    for (const time of revised.keys()) {
      marks.push({ time, text: "", color: view.color("info"), isAbove: true, shape: "circle" });
    }
    view.setMarks(marks.filter(({ time }) => time >= first.time).sort((a, b) => a.time - b.time));
  }

  revisionOf(bar: Bar): number {
    return Math.max(bar.revision, this.#revised.get(bar.time) ?? 0);
  }
}

function titled(chart: HTMLCanvasElement, title: string, ground: string, ink: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const height = 28 * devicePixelRatio;
  canvas.width = chart.width;
  canvas.height = chart.height + height;
  const context = canvas.getContext("2d")!;
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, height);
  context.fillStyle = ink;
  context.font = `${12 * devicePixelRatio}px sans-serif`;
  context.fillText(title, height / 2, height * 0.65);
  context.drawImage(chart, 0, height);
  return canvas;
}

function LastPrice({ parts }: { parts: Parts }) {
  const bar = useValue(parts.newest);
  if (bar === undefined) return null;
  const before = parts.feed.candles.bars[parts.feed.candles.indexFrom(bar.time - 86400)];
  const change = before === undefined || before.time === bar.time ? undefined : bar.close / before.open - 1;
  const reach = before === undefined ? 0 : Math.round((bar.time - before.time) / 3600) >= 23 ? 86400 : bar.time - before.time;
  return (
    <p class="last">
      <b class={bar.close >= bar.open ? "up" : "down"}>{prices([bar.open, bar.high, bar.low, bar.close])[3]}</b>
      {change !== undefined && (
        <span class={change >= 0 ? "up" : "down"}>
          {percent(change)} <small>{span(reach)}</small>
        </span>
      )}
    </p>
  );
}

function Empty({ parts, period }: { parts: Parts; period: string }) {
  const reach = Math.min(periodSeconds(period) * 1440, 20 * 365 * 86400);
  return (
    <div class="chart-cover">
      <p>
        No {period} bars of {parts.ticker} are stored.
      </p>
      <FetchButton parts={parts} period={period} range={() => ({ start: openTime(now() - reach, parts.period), end: now() })}>
        Get the last {span(reach)}
      </FetchButton>
    </div>
  );
}

/** Shown where the stored bars begin. */
function Earlier({ parts, period }: { parts: Parts; period: string }) {
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => {
      const first = parts.feed.candles.first;
      const visible = parts.view?.visible();
      setNear(first !== undefined && visible !== undefined && visible.from <= first.time + 5 * parts.period);
    }, 400);
    return () => clearInterval(timer);
  }, [parts]);
  const first = parts.feed.candles.first;
  if (!isNear || first === undefined) return null;
  const reach = parts.period * 1440;
  return (
    <div class="earlier">
      <FetchButton parts={parts} period={period} range={() => ({ start: first.time - reach, end: first.time })}>
        Get {span(reach)} before {moment(first.time).slice(0, 16)}
      </FetchButton>
    </div>
  );
}

function FetchButton(props: {
  parts: Parts;
  period: string;
  range: () => { start: number; end: number };
  children: preact.ComponentChildren;
}) {
  const [text, setText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const mayChange = useMayChange();
  const run = async (): Promise<void> => {
    const range = props.range();
    setBusy(true);
    setText("Queued");
    try {
      const final = await fetchHistory({ ticker: props.parts.ticker, period: props.period, ...range }, (state) => {
        const expected = state.expected_candles || 0;
        setText(expected > 0 ? `${whole(state.done_candles)} of ${counted(expected, "bar")}` : state.reason || "Queued");
      });
      const result = final.notification;
      await props.parts.feed.refresh(range.start, range.end);
      setText(result && result.status !== "OK" ? `${result.status}: ${result.error_message}` : "");
    } catch (error) {
      setText((error as Error).message);
    } finally {
      setBusy(false);
    }
  };
  if (!mayChange) return null;
  return (
    <>
      <button type="button" disabled={isBusy} onClick={() => void run()}>
        <Icon name="requests" /> {props.children}
      </button>
      {text && <span role="status">{text}</span>}
    </>
  );
}

function gapText(missing: number | null | undefined, isRepaired: boolean, reason: string): string {
  const [trades, isOne] = [missing == null ? "some trades" : counted(missing, "trade"), missing === 1];
  const state = isRepaired ? `${isOne ? "was" : "were"} missed and repaired` : `${isOne ? "is" : "are"} missing`;
  return `${trades} ${state}${reason && ` (${reason})`}`;
}

function describe(ticker: string, period: string, parts: Parts): string {
  const last = parts.feed.candles.last;
  const range = last ? `, ${parts.feed.candles.bars.length} bars until ${moment(last.time)}, last close ${last.close}` : "";
  return `Candles of ${ticker} by ${period}${range}`;
}

function useStored(ticker: string): Stored[] {
  const [stored, set] = useState<Stored[]>([]);
  useEffect(() => {
    storedBars().then(
      (rows) => set(rows.filter((each) => each.ticker === ticker)),
      () => undefined,
    );
  }, [ticker]);
  return stored;
}
