/** The days that finished requests have proven complete. */
import { seconds } from "./times";

export interface Span {
  start: string;
  end: string;
}

export interface Covered extends Span {
  period_seconds: number;
  holes: Span[] | null;
  status: string | null;
}

/** The share of each day since the epoch that is covered, without holes. */
export function coveredDays(rows: Covered[]): Map<number, number> {
  const spans = rows
    .filter((row) => row.status === "OK" || row.status === null)
    .flatMap((row) => without([seconds(row.start), seconds(row.end)], row.holes ?? []))
    .sort((a, b) => a[0] - b[0]);
  const days = new Map<number, number>();
  let covered = -Infinity;
  for (const [start, end] of spans) {
    for (let from = Math.max(start, covered); from < end; ) {
      const at = Math.floor(from / 86400);
      const until = Math.min(end, (at + 1) * 86400);
      days.set(at, Math.min(1, (days.get(at) ?? 0) + (until - from) / 86400));
      from = until;
    }
    covered = Math.max(covered, end);
  }
  return days;
}

function without([start, end]: [number, number], holes: Span[]): [number, number][] {
  const parts: [number, number][] = [];
  let from = start;
  for (const hole of [...holes].sort((a, b) => seconds(a.start) - seconds(b.start))) {
    if (seconds(hole.start) > from) parts.push([from, seconds(hole.start)]);
    from = Math.max(from, seconds(hole.end));
  }
  if (from < end) parts.push([from, end]);
  return parts;
}
