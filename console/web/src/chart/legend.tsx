/** The figures of the bar at the crosshair. */
import { compact, percent, prices } from "../data/numbers";
import { moment } from "../data/times";
import type { Bar } from "./candles";

/** For screen readers. */
export function spokenOf(bar: Bar): string {
  const [open, high, low, close] = prices([bar.open, bar.high, bar.low, bar.close]);
  return `${moment(bar.time)}: open ${open}, high ${high}, low ${low}, close ${close}`;
}

export function Legend({ bar, note }: { bar?: Bar; note: string }) {
  if (bar === undefined) return note ? <p class="legend">{note}</p> : null;
  const direction = bar.close >= bar.open ? "up" : "down";
  const shown = [...prices([bar.open, bar.high, bar.low, bar.close]), compact(bar.volume)];
  const cells = ["O", "H", "L", "C", "V"].map((name, at) => [name, shown[at]!] as const);
  return (
    <p class="legend">
      <time>{moment(bar.time)} UTC</time>
      {cells.map(([name, value]) => (
        <span key={name}>
          <i>{name}</i>
          <b class={name === "V" ? "" : direction}>{value}</b>
        </span>
      ))}
      <span class={bar.close >= bar.open ? "up" : "down"}>{percent(bar.close / bar.open - 1)}</span>
      {bar.isForming ? <em>forming</em> : bar.source !== "" && <em>{bar.source}</em>}
      {bar.revision > 0 && <em class="info">revision {bar.revision}</em>}
      {note && <em class="warn">{note}</em>}
    </p>
  );
}
