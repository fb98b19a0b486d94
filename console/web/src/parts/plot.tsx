/** Numeric columns of a result as lines over its first time or numeric column. */
import { LineSeries, createChart, type IChartApi, type UTCTimestamp } from "lightweight-charts";
import { useEffect, useRef } from "preact/hooks";
import type { Column } from "../data/sql";
import { seconds } from "../data/times";
import { useValue } from "../data/value";
import { theme } from "../shell/theme";

type Row = Record<string, unknown>;
const ISO = /^\d{4}-\d\d-\d\d/;
const MOST_LINES = 6;
const COLORS = ["--var-a", "--var-c", "--var-d", "--var-b", "--accent", "--down"];

const isTime = (rows: Row[], name: string): boolean => rows.some((row) => row[name] != null) && rows.every((row) => row[name] == null || ISO.test(String(row[name])));
const isNumber = (rows: Row[], name: string): boolean => rows.some((row) => typeof row[name] === "number");

export const plottable = (columns: Column[], rows: Row[]): boolean => columns.some(({ name }) => isNumber(rows, name));

export function Plot({ columns, rows }: { columns: Column[]; rows: Row[] }) {
  const box = useRef<HTMLDivElement>(null);
  const dark = useValue(theme);
  const time = columns.find(({ name }) => isTime(rows, name))?.name;
  const lines = columns
    .map(({ name }) => name)
    .filter((name) => name !== time && isNumber(rows, name))
    .slice(0, MOST_LINES);
  useEffect(() => {
    const element = box.current!;
    const style = getComputedStyle(element);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const chart: IChartApi = createChart(element, {
      autoSize: true,
      layout: {
        attributionLogo: false,
        background: { color: color("--panel") },
        textColor: color("--muted"),
        fontFamily: style.fontFamily,
        fontSize: 11,
      },
      grid: { vertLines: { color: color("--grid") }, horzLines: { color: color("--grid") } },
      rightPriceScale: { borderColor: color("--line") },
      timeScale: {
        borderColor: color("--line"),
        timeVisible: time !== undefined,
        ...(time === undefined && { tickMarkFormatter: (at: number) => String(at) }),
      },
      localization: { locale: "en", ...(time === undefined && { timeFormatter: (at: number) => `row ${at}` }) },
    });
    lines.forEach((name, at) => {
      const points = new Map<number, number>();
      rows.forEach((row, index) => {
        const value = row[name];
        const x = time === undefined ? index : seconds(String(row[time]));
        if (typeof value === "number" && Number.isFinite(x)) points.set(x, value);
      });
      const sorted = [...points].sort((a, b) => a[0] - b[0]);
      const series = chart.addSeries(LineSeries, { color: color(COLORS[at]!), lineWidth: 2, priceLineVisible: false });
      series.setData(sorted.map(([x, value]) => ({ time: x as UTCTimestamp, value })));
    });
    chart.timeScale().fitContent();
    return () => chart.remove();
  }, [rows, dark]);
  return (
    <div class="plot">
      <p class="plot-names">
        {lines.map((name, at) => (
          <span key={name}>
            <i ref={(mark) => mark?.style.setProperty("background", `var(${COLORS[at]})`)} /> {name}
          </span>
        ))}
        <small>over {time ?? "row number"}</small>
      </p>
      <div class="plot-canvas" ref={box} role="img" aria-label={`${lines.join(", ")} over ${time ?? "rows"}`} />
      <a class="attribution" href="https://www.tradingview.com/">
        Charts by TradingView
      </a>
    </div>
  );
}
