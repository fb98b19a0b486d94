/** The figures of the bar at the crosshair. */
import { compact, percent, price } from "../data/numbers";
import { moment } from "../data/times";
import type { Bar } from "./candles";

/** For screen readers. */
export function spokenOf(bar: Bar): string {
  const prices = `open ${price(bar.open)}, high ${price(bar.high)}, low ${price(bar.low)}, close ${price(bar.close)}`;
  return `${moment(bar.time)}: ${prices}`;
}

export function Legend({ bar, note }: { bar?: Bar; note: string }) {
  if (bar === undefined) return note ? <p class="legend">{note}</p> : null;
  const direction = bar.close >= bar.open ? "up" : "down";
  const cells: [string, string][] = [
    ["O", price(bar.open)],
    ["H", price(bar.high)],
    ["L", price(bar.low)],
    ["C", price(bar.close)],
    ["V", compact(bar.volume)],
  ];
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
