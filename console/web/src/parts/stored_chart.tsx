/** Stored bars with marks and bands over them. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Band } from "../chart/bands";
import type { Bar } from "../chart/candles";
import { chartKeys } from "../chart/keys";
import { Legend, spokenOf } from "../chart/legend";
import type { Mark } from "../chart/marks";
import { ChartView } from "../chart/view";
import { StoredRows } from "../data/bars";
import { periodSeconds } from "../data/times";
import { useShortcuts } from "../shell/keys";
import { theme } from "../shell/theme";

/** Must be in time order. */
export interface Drawing {
  marks: Mark[];
  bands: Band[];
}

interface Props {
  ticker: string;
  period: string;
  /** The bars to read; none if undefined. */
  range: { from: number; to: number } | undefined;
  /** Called again whenever it or the theme changes. */
  draw: (chart: ChartView) => Drawing;
  /** The visible range; undefined for the newest bars. */
  shown: { from: number; to: number } | undefined;
  /** Labels of the section, and of the chart in it. */
  name: string;
  description: string;
  click?: (time: number) => void;
}

const MOST_BARS = 100_000;

export function StoredChart(props: Props) {
  const { ticker, range, shown } = props;
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<ChartView | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const period = periodSeconds(props.period);
  const [bars, setBars] = useState<Bar[]>();
  const section = useRef<HTMLElement>(null);
  const drawn = useRef<Mark[]>([]);
  const [pointed, setPointed] = useState<{ bar?: Bar; note: string; spoken?: string }>({ note: "" });
  const paint = (): void => {
    const chart = view.current;
    if (chart === null) return;
    const { marks, bands } = latest.current.draw(chart);
    drawn.current = marks;
    chart.setMarks(marks);
    chart.setBands(bands);
  };
  const look = (): void => {
    const { from, to } = latest.current.shown ?? {};
    if (from === undefined || to === undefined) view.current?.toNewest();
    else view.current?.show(from, to);
  };

  /** The bar at the crosshair, with what its marks say. */
  const point = (time: number | undefined, isSpoken = false): void => {
    const bar = time === undefined ? undefined : view.current?.barAt(time);
    if (bar === undefined) return setPointed({ note: "" });
    const marks = drawn.current.filter((mark) => view.current?.barAt(mark.time) === bar);
    const note = [...new Set(marks.map(({ text }) => text || "match"))].join(", ");
    setPointed({ bar, note, ...(isSpoken && { spoken: [spokenOf(bar), note].filter(Boolean).join(", ") }) });
  };
  const step = (bars: number): void => point(view.current?.point(bars), true);
  const unpoint = (): void => {
    view.current?.unpoint();
    point(undefined);
  };
  useShortcuts(chartKeys(() => view.current, step, unpoint).map((each) => ({ ...each, within: section })), []);

  useEffect(() => {
    const abort = new AbortController();
    setBars(undefined);
    if (range === undefined) return;
    const from = Math.max(range.from, range.to - MOST_BARS * period);
    new StoredRows(ticker).between(props.period, from, range.to, abort.signal).then(setBars, () => undefined);
    return () => abort.abort();
  }, [ticker, props.period, range?.from, range?.to]);
  useEffect(() => {
    if (bars === undefined || bars.length === 0) return;
    const chart = new ChartView(box.current!, period, {
      click: (time) => latest.current.click?.(time),
      crosshair: (time) => point(time),
    });
    view.current = chart;
    chart.set(bars);
    paint();
    look();
    const end = theme.follow(() =>
      requestAnimationFrame(() => {
        chart.paint();
        paint();
      }),
    );
    return () => {
      end();
      view.current = null;
      chart.close();
    };
  }, [bars]);
  useEffect(paint, [props.draw]);
  useEffect(look, [shown?.from, shown?.to]);

  return (
    <section ref={section} class="card match-chart" aria-label={props.name}>
      <div class="canvas" ref={box} role="img" tabIndex={0} aria-label={props.description} />
      <p class="unseen" role="status">
        {pointed.spoken}
      </p>
      <Legend bar={pointed.bar} note={pointed.note} />
      {bars?.length === 0 && <p class="nothing">No bars are stored for this range.</p>}
      <a class="attribution" href="https://www.tradingview.com/">
        Charts by TradingView
      </a>
    </section>
  );
}
