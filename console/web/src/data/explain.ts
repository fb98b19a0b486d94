/** How close a trigger came to firing: the API's answer, and the parts that are drawn on a chart. */
import type { AttemptBody as Attempt, ConditionBody as Condition, Explained as Explanation } from "candlewright/api";
import { get } from "./api";
import { openTime, periodSeconds, seconds } from "./times";

export type {
  AttemptBody as Attempt, ConditionBody as Condition, Explained as Explanation, RowBody as Row, StageBody as Stage,
  TestedBody as Tested,
} from "candlewright/api";

export interface Asked {
  ticker?: string;
  at?: string;
  attempts: number;
}

export const explainTrigger = (id: string, asked: Asked, signal?: AbortSignal): Promise<Explanation> =>
  get<Explanation>(`triggers/${encodeURIComponent(id)}/explain`, { ...asked }, signal);

/** The bars on which an explanation is drawn: those that the trigger reads, or the shortest bars for trades and events. */
export function drawnPeriod(over: string): string {
  const periods = [...over.matchAll(/bars of (\w+)/g)].map((found) => found[1]!);
  return periods.sort((a, b) => periodSeconds(a) - periodSeconds(b))[0] ?? "1m";
}

/** One bar of an attempt. `variable`: its index among the variables of the attempt, -1 where the attempt failed. */
export interface DrawnBar {
  time: number;
  text: string;
  variable: number;
}

/** The rows of an attempt by the bars that contain them, in time order; the row at which it failed comes last. */
export function drawnBars(attempt: Attempt, period: number): DrawnBar[] {
  const names = [...new Set(attempt.rows.map((row) => row.variable))];
  const bars: DrawnBar[] = [];
  for (const { time, variable } of attempt.rows) {
    if (time === null) continue;
    const open = openTime(seconds(time), period);
    const last = bars[bars.length - 1];
    if (last?.time !== open) bars.push({ time: open, text: variable, variable: names.indexOf(variable) });
    else if (!last.text.split(" ").includes(variable)) last.text += ` ${variable}`;
  }
  const died = attempt.outcome === "failed" || attempt.outcome === "expired";
  const end = attempt.nearest[0]?.row?.time;
  if (died && end) {
    const refused = attempt.nearest.map(({ variable }) => variable).filter(Boolean);
    const text = refused.length > 0 ? `not ${refused.join(", ")}` : "no";
    bars.push({ time: openTime(seconds(end), period), text, variable: -1 });
  }
  return bars;
}

/** From its first row to the last one that counts, in seconds; undefined if its rows have no time. */
export function stretchOf(attempt: Attempt): { from: number; to: number } | undefined {
  const tested = attempt.nearest.map(({ row }) => row?.time);
  const times = [attempt.start, ...attempt.rows.map(({ time }) => time), ...tested].flatMap((time) =>
    time ? [seconds(time)] : [],
  );
  return times.length === 0 ? undefined : { from: Math.min(...times), to: Math.max(...times) };
}

/** The parts of an AND, each of which is shown on a separate line. */
export function linesOf(condition: Condition): Condition[] {
  return condition.connective === "AND" ? condition.parts.flatMap(linesOf) : [condition];
}
