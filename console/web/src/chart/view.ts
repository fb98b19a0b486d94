/** One drawn chart: candles, volume, marks and bands, by TradingView's Lightweight Charts. Knows nothing of the platform. */
import {
  CandlestickSeries,
  ColorType,
  CrosshairMode,
  HistogramSeries,
  LineStyle,
  PriceScaleMode,
  createChart,
  createSeriesMarkers,
  type CandlestickData,
  type HistogramData,
  type IChartApi,
  type ISeriesApi,
  type ISeriesMarkersPluginApi,
  type SeriesMarker,
  type Time,
  type UTCTimestamp,
  type WhitespaceData,
} from "lightweight-charts";
import { precisionOf } from "../data/numbers";
import { Bands, type Band } from "./bands";
import type { Bar } from "./candles";

export interface Mark {
  time: number;
  text: string;
  color: string;
  isAbove?: boolean;
  shape?: "arrowUp" | "arrowDown" | "circle" | "square";
}

/** Bars left of the view at which older ones are asked for. */
const NEAR_BARS = 150;
/** A longer hole takes the place of one bar: it would push everything else out of sight. */
const LONGEST_DRAWN_HOLE = 240;

export interface Events {
  crosshair?: (time: number | undefined) => void;
  older?: () => void;
  click?: (time: number) => void;
}

export class ChartView {
  readonly #chart: IChartApi;
  readonly #candles: ISeriesApi<"Candlestick">;
  readonly #volumes: ISeriesApi<"Histogram">;
  readonly #marks: ISeriesMarkersPluginApi<Time>;
  readonly #bands = new Bands();
  #colors: ReturnType<typeof readColors>;
  #precision = -1;
  #lastTime = 0;
  #drawn: Bar[] = [];
  #period: number;

  constructor(
    private readonly element: HTMLElement,
    period: number,
    private readonly on: Events,
  ) {
    this.#period = period;
    this.#colors = readColors(element);
    this.#chart = createChart(element, {
      autoSize: true,
      layout: { attributionLogo: false, fontFamily: getComputedStyle(element).fontFamily, fontSize: 11 },
      crosshair: { mode: CrosshairMode.Normal },
      rightPriceScale: { scaleMargins: { top: 0.08, bottom: 0.24 }, minimumWidth: 64 },
      timeScale: { timeVisible: period < 86400, secondsVisible: period < 60, rightOffset: 6, minBarSpacing: 0.02 },
      localization: { locale: "en" },
    });
    this.#candles = this.#chart.addSeries(CandlestickSeries, { priceLineStyle: LineStyle.Dotted });
    this.#volumes = this.#chart.addSeries(HistogramSeries, {
      priceScaleId: "volume",
      priceFormat: { type: "volume" },
      lastValueVisible: false,
      priceLineVisible: false,
    });
    this.#chart.priceScale("volume").applyOptions({ scaleMargins: { top: 0.84, bottom: 0 } });
    this.#candles.attachPrimitive(this.#bands);
    this.#marks = createSeriesMarkers(this.#candles, [], { zOrder: "top" });
    this.paint();
    this.#chart.subscribeCrosshairMove(({ time }) => this.on.crosshair?.(time as number | undefined));
    this.#chart.subscribeClick(({ time }) => time !== undefined && this.on.click?.(time as number));
    this.#chart.timeScale().subscribeVisibleLogicalRangeChange((range) => {
      if (range !== null && range.from < NEAR_BARS) this.on.older?.();
    });
  }

  /** Takes the colours of the theme in force. */
  paint(): void {
    const colors = (this.#colors = readColors(this.element));
    this.#chart.applyOptions({
      layout: { background: { type: ColorType.Solid, color: colors.panel }, textColor: colors.muted },
      grid: { vertLines: { color: colors.grid }, horzLines: { color: colors.grid } },
      crosshair: {
        vertLine: { color: colors.muted, labelBackgroundColor: colors.label },
        horzLine: { color: colors.muted, labelBackgroundColor: colors.label },
      },
      rightPriceScale: { borderColor: colors.line },
      timeScale: { borderColor: colors.line },
    });
    this.#candles.applyOptions({
      upColor: colors.up,
      downColor: colors.down,
      wickUpColor: colors.up,
      wickDownColor: colors.down,
      borderVisible: false,
    });
    this.#volumes.setData(this.#drawn.map((bar) => this.#volume(bar)));
  }

  /** All bars anew; what is in view stays in view. */
  set(bars: Bar[]): void {
    this.#drawn = bars;
    if (this.#precision < 0 && bars.length > 0) {
      this.#precision = Math.max(2, precisionOf(bars.slice(-400).flatMap((bar) => [bar.high, bar.low])));
      this.#candles.applyOptions({
        priceFormat: { type: "price", precision: this.#precision, minMove: 10 ** -this.#precision },
      });
    }
    const drawn: (CandlestickData | WhitespaceData)[] = [];
    let expected = bars[0]?.time ?? 0;
    for (const bar of bars) {
      if (bar.time > expected) {
        const missing = (bar.time - expected) / this.#period;
        const step = missing > LONGEST_DRAWN_HOLE ? bar.time - expected : this.#period;
        for (let time = expected; time < bar.time; time += step) drawn.push({ time: time as UTCTimestamp });
      }
      drawn.push(this.#candle(bar));
      expected = bar.time + this.#period;
    }
    this.#candles.setData(drawn);
    this.#volumes.setData(bars.map((bar) => this.#volume(bar)));
    this.#lastTime = bars[bars.length - 1]?.time ?? 0;
  }

  /** The newest bar, again or for the first time. False where it is older than what is drawn, or leaves a hole. */
  update(bar: Bar): boolean {
    if (bar.time < this.#lastTime || (this.#lastTime > 0 && bar.time > this.#lastTime + this.#period)) return false;
    this.#candles.update(this.#candle(bar));
    this.#volumes.update(this.#volume(bar));
    this.#lastTime = bar.time;
    return true;
  }

  setMarks(marks: Mark[]): void {
    this.#marks.setMarkers(
      marks.map(
        (mark): SeriesMarker<Time> => ({
          time: mark.time as UTCTimestamp,
          position: mark.isAbove ? "aboveBar" : "belowBar",
          shape: mark.shape ?? "arrowUp",
          color: mark.color,
          text: mark.text,
        }),
      ),
    );
  }

  setBands(bands: Band[]): void {
    this.#bands.set(bands);
  }

  bandAt(time: number): Band | undefined {
    return this.#bands.at(time);
  }

  color(name: keyof ReturnType<typeof readColors>): string {
    return this.#colors[name];
  }

  setLogarithmic(on: boolean): void {
    this.#candles.priceScale().applyOptions({ mode: on ? PriceScaleMode.Logarithmic : PriceScaleMode.Normal });
  }

  /** The newest bars at a readable width. */
  toNewest(): void {
    const scale = this.#chart.timeScale();
    const wanted = Math.min(this.#drawn.length + 4, Math.max(40, Math.floor(scale.width() / 7)));
    const end = this.#drawn.length + 4;
    scale.resetTimeScale();
    if (this.#drawn.length > 0) scale.setVisibleLogicalRange({ from: this.#last() - wanted + 5, to: this.#last() + 5 });
    else scale.setVisibleLogicalRange({ from: end - wanted, to: end });
  }

  #last(): number {
    return this.#chart.timeScale().timeToIndex(this.#lastTime as UTCTimestamp, true) ?? this.#drawn.length - 1;
  }

  fit(): void {
    this.#chart.timeScale().fitContent();
  }

  /** Brings a stretch of time into the middle of the view. */
  show(from: number, to: number): void {
    const scale = this.#chart.timeScale();
    const left = scale.timeToIndex(from as UTCTimestamp, true);
    const right = scale.timeToIndex(to as UTCTimestamp, true);
    if (left === null || right === null) return;
    const margin = Math.max(30, (right - left) * 0.8);
    scale.setVisibleLogicalRange({ from: left - margin, to: right + margin });
  }

  /** By parts of what is in view: positive towards the newest. */
  pan(part: number): void {
    const scale = this.#chart.timeScale();
    const range = scale.getVisibleLogicalRange();
    if (range === null) return;
    const step = (range.to - range.from) * part;
    scale.setVisibleLogicalRange({ from: range.from + step, to: range.to + step });
  }

  zoom(factor: number): void {
    const scale = this.#chart.timeScale();
    const range = scale.getVisibleLogicalRange();
    if (range === null) return;
    const width = Math.max(10, (range.to - range.from) * factor);
    scale.setVisibleLogicalRange({ from: range.to - width, to: range.to });
  }

  visible(): { from: number; to: number } | undefined {
    const range = this.#chart.timeScale().getVisibleRange();
    return range === null ? undefined : { from: range.from as number, to: range.to as number };
  }

  picture(): HTMLCanvasElement {
    return this.#chart.takeScreenshot(true, false);
  }

  close(): void {
    this.#chart.remove();
  }

  #candle(bar: Bar): CandlestickData {
    const { up, down } = this.#colors;
    const data: CandlestickData = {
      time: bar.time as UTCTimestamp,
      open: bar.open,
      high: bar.high,
      low: bar.low,
      close: bar.close,
    };
    // A forming bar is drawn paler than those that will not change.
    if (bar.isForming) data.color = `${bar.close >= bar.open ? up : down}88`;
    return data;
  }

  #volume(bar: Bar): HistogramData {
    const { up, down } = this.#colors;
    return { time: bar.time as UTCTimestamp, value: bar.volume, color: `${bar.close >= bar.open ? up : down}5c` };
  }
}

function readColors(element: HTMLElement) {
  const style = getComputedStyle(element);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    panel: read("panel"),
    muted: read("muted"),
    line: read("line"),
    grid: read("grid"),
    label: read("label"),
    up: read("up"),
    down: read("down"),
    accent: read("accent"),
    warn: read("warn"),
    info: read("info"),
    a: read("var-a"),
    b: read("var-b"),
    c: read("var-c"),
    d: read("var-d"),
  };
}
