/** One chart: candles, volume, marks and bands, by TradingView's Lightweight Charts. It is independent of the platform. */
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
import { type Mark, withoutOverlaps } from "./marks";
import { type Place, Stretch } from "./stretch";

/** Older bars are requested when fewer than these screens, or these bars, remain left of the view. */
const NEAR_SCREENS = 1.5;
const NEAR_BARS = 300;
/** The chart coasts after a touch; its places do not change until it rests. */
const COASTING_MS = 150;

export interface Events {
  crosshair?: (time: number | undefined) => void;
  /** Called when older bars are needed, with the number of visible bars. */
  older?: (inView: number) => void;
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
  readonly #period: number;
  readonly #ends = new AbortController();
  #bars: readonly Bar[] = [];
  #forming: Bar | undefined;
  #stretch: Stretch | undefined;
  #allMarks: Mark[] = [];
  #markedSpacing = 0;
  #allBands: Band[] = [];
  #pointedAt: number | undefined;
  #isPressed = false;
  #isTouched = false;
  #check = 0;

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
      timeScale: { timeVisible: period < 86400, secondsVisible: period < 60, rightOffset: 6, minBarSpacing: 0.05 },
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
    this.#chart.timeScale().subscribeVisibleLogicalRangeChange(() => this.#moved());
    const { signal } = this.#ends;
    element.addEventListener("pointerdown", (event) => this.#pressed(true, event), { signal, capture: true });
    for (const name of ["pointerup", "pointercancel"] as const)
      window.addEventListener(name, (event) => this.#pressed(false, event), { signal, capture: true });
  }

  /** Applies the colours of the current theme. */
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
    if (this.#stretch !== undefined) this.#hand(this.#stretch.places);
  }

  /** Replaces all bars; the view does not move. */
  set(bars: readonly Bar[]): void {
    if (this.#precision < 0 && bars.length > 0) {
      this.#precision = Math.max(2, precisionOf(bars.slice(-400).flatMap((bar) => [bar.high, bar.low])));
      this.#candles.applyOptions({
        priceFormat: { type: "price", precision: this.#precision, minMove: 10 ** -this.#precision },
      });
    }
    this.#bars = bars;
    const inView = this.#inView();
    if (inView === undefined) this.#drawNewest();
    else this.#draw(inView.from, inView.to);
  }

  /** Older bars were added before the others. */
  extend(bars: readonly Bar[]): void {
    this.#bars = bars;
    this.#moved();
  }

  /** Adds or updates the newest bar. */
  update(bar: Bar): void {
    this.#forming = bar.isForming ? bar : undefined;
    const stretch = this.#stretch;
    if (stretch !== undefined && !stretch.hasLast) return;
    const place = stretch?.extend(bar);
    if (place?.bar === undefined) {
      this.set(this.#bars);
    } else {
      this.#candles.update(this.#candle(place));
      this.#volumes.update(this.#volume(place.bar, place.time));
    }
  }

  /** The bar, or group of bars, drawn at a time. */
  barAt(time: number): Bar | undefined {
    return this.#stretch?.placeAt(time)?.bar;
  }

  /** `marks` must be in time order. */
  setMarks(marks: Mark[]): void {
    this.#allMarks = marks;
    const stretch = this.#stretch;
    if (stretch === undefined) return;
    const { barSpacing } = this.#chart.timeScale().options();
    this.#markedSpacing = barSpacing;
    const placed = marks.flatMap((mark) => {
      const place = stretch.placeAt(mark.time);
      return place === undefined ? [] : [{ ...mark, time: place.time }];
    });
    const shown = withoutOverlaps(placed, (time) => stretch.positionOf(time) * barSpacing);
    this.#marks.setMarkers(
      shown.map(
        ({ time, isAbove, shape, color, text }): SeriesMarker<Time> => ({
          time: time as UTCTimestamp,
          position: isAbove ? "aboveBar" : "belowBar",
          shape: shape ?? "arrowUp",
          color,
          text,
        }),
      ),
    );
  }

  setBands(bands: Band[]): void {
    this.#allBands = bands;
    const { first, last } = this.#stretch ?? { first: 0, last: 0 };
    this.#bands.set(bands.filter(({ from, to }) => to > first && from <= last));
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
    this.#drawNewest();
    const scale = this.#chart.timeScale();
    const end = (this.#stretch?.places.length ?? 0) + 4;
    scale.resetTimeScale();
    // Even with few bars, because more may follow.
    scale.setVisibleLogicalRange({ from: end - this.#readable(), to: end });
  }

  /** Shows everything that is loaded. */
  fit(): void {
    this.#draw(this.#bars[0]?.time ?? 0, Infinity);
    this.#chart.timeScale().fitContent();
  }

  /** Centres the view on a range of time. */
  show(from: number, to: number): void {
    const margin = Math.max(30 * this.#period, (to - from) * 0.8);
    this.#draw(from - margin, to + margin);
    this.#look(from - margin, to + margin);
  }

  /** Moves the view by a fraction of its width; positive values move towards the newest bar. */
  pan(part: number): void {
    const scale = this.#chart.timeScale();
    const range = scale.getVisibleLogicalRange();
    if (range === null) return;
    const step = (range.to - range.from) * part;
    scale.setVisibleLogicalRange({ from: range.from + step, to: range.to + step });
  }

  /** Moves the crosshair by bars from its last position, initially the newest bar; returns its time. */
  point(bars: number): number | undefined {
    const places = this.#stretch?.places ?? [];
    const range = this.#chart.timeScale().getVisibleLogicalRange();
    if (range === null || places.length === 0) return undefined;
    const visible = { from: Math.max(0, Math.ceil(range.from)), to: Math.min(places.length - 1, Math.floor(range.to)) };
    const before = this.#pointedAt === undefined ? visible.to - bars : Math.round(this.#stretch!.positionOf(this.#pointedAt));
    let at = Math.min(places.length - 1, Math.max(0, before + bars));
    while (at > 0 && places[at]!.bar === undefined) at -= 1;
    const { time, bar } = places[at]!;
    if (bar === undefined) return undefined;
    if (at < visible.from || at > visible.to) {
      const shift = at < visible.from ? at - visible.from : at - visible.to;
      this.#chart.timeScale().setVisibleLogicalRange({ from: range.from + shift, to: range.to + shift });
    }
    this.#pointedAt = time;
    this.#chart.setCrosshairPosition(bar.close, time as UTCTimestamp, this.#candles);
    return time;
  }

  unpoint(): void {
    this.#pointedAt = undefined;
    this.#chart.clearCrosshairPosition();
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
    this.#ends.abort();
    clearTimeout(this.#check);
    this.#chart.remove();
  }

  /** How many bars can be distinguished easily. */
  #readable(): number {
    return Math.max(40, Math.floor(this.#chart.timeScale().width() / 7));
  }

  #drawNewest(): void {
    this.#draw(this.#bars.at(-this.#readable())?.time ?? this.#bars[0]?.time ?? 0, Infinity);
  }

  /** Passes the chart the bars for a view of these times. */
  #draw(from: number, to: number): void {
    const isLonger = this.#forming !== undefined && this.#forming.time > (this.#bars.at(-1)?.time ?? -Infinity);
    const bars = isLonger ? [...this.#bars, this.#forming!] : this.#bars;
    this.#stretch = Stretch.around(bars, this.#period, from, to);
    this.#hand(this.#stretch.places);
    this.setMarks(this.#allMarks);
    this.setBands(this.#allBands);
  }

  #hand(places: Place[]): void {
    this.#candles.setData(places.map((place) => this.#candle(place)));
    this.#volumes.setData(places.flatMap(({ time, bar }) => (bar === undefined ? [] : [this.#volume(bar, time)])));
  }

  /** The times at the edges of the view, which may be outside all bars. */
  #inView(): { from: number; to: number } | undefined {
    const range = this.#chart.timeScale().getVisibleLogicalRange();
    const stretch = this.#stretch;
    if (range === null || stretch === undefined || stretch.places.length === 0) return undefined;
    return { from: stretch.timeAt(range.from), to: stretch.timeAt(range.to) };
  }

  #look(from: number, to: number): void {
    const stretch = this.#stretch;
    if (stretch === undefined || stretch.places.length === 0) return;
    this.#chart.timeScale().setVisibleLogicalRange({ from: stretch.positionOf(from), to: stretch.positionOf(to) });
  }

  #pressed(isPressed: boolean, event: PointerEvent): void {
    this.#isPressed = isPressed;
    this.#isTouched = event.pointerType === "touch";
    if (!isPressed) this.#moved();
  }

  /** While a pointer moves the chart, the library counts in places, so these change only afterwards. */
  #moved(): void {
    clearTimeout(this.#check);
    if (this.#isPressed) return;
    this.#check = window.setTimeout(() => this.#settle(), this.#isTouched ? COASTING_MS : 0);
  }

  #settle(): void {
    const view = this.#inView();
    if (view === undefined) return;
    const { from, to } = view;
    if (!this.#stretch!.fits(this.#bars, from, to)) {
      this.#draw(from, to);
      this.#look(from, to);
    } else if (this.#chart.timeScale().options().barSpacing !== this.#markedSpacing) {
      this.setMarks(this.#allMarks);
    }
    const inView = (to - from) / this.#period;
    const near = Math.max(NEAR_BARS, NEAR_SCREENS * inView) * this.#period;
    if (from - near < (this.#bars[0]?.time ?? -Infinity)) this.on.older?.(inView);
  }

  #candle({ time, bar }: Place): CandlestickData | WhitespaceData {
    if (bar === undefined) return { time: time as UTCTimestamp };
    const { up, down } = this.#colors;
    const data: CandlestickData = {
      time: time as UTCTimestamp,
      open: bar.open,
      high: bar.high,
      low: bar.low,
      close: bar.close,
    };
    // A forming bar is drawn paler than closed ones.
    if (bar.isForming) data.color = `${bar.close >= bar.open ? up : down}88`;
    return data;
  }

  #volume(bar: Bar, time: number): HistogramData {
    const { up, down } = this.#colors;
    return { time: time as UTCTimestamp, value: bar.volume, color: `${bar.close >= bar.open ? up : down}5c` };
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
