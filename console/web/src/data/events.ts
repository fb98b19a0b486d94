/** Events of triggers: stored ones, and those that fire while the page is open. */
import { get } from "./api";
import { follow, type Message } from "./live";
import { literal, rowsOf, runSql } from "./sql";
import { seconds } from "./times";

export interface TriggerEvent {
  id: string;
  trigger: string;
  ticker: string;
  /** When the exchange says it happened; where no column has a time, when it was published. */
  time: number;
  firedAt: number;
  columns: Record<string, unknown>;
}

export interface Trigger {
  trigger_id: string;
  sql: string;
  tickers: string[];
  parameters: Record<string, string>;
  state: string;
  reason: string;
  is_starting: boolean;
  registered_at: string;
  events: number;
}

type Row = Record<string, unknown>;

export const listTriggers = async (signal?: AbortSignal): Promise<Trigger[]> =>
  (await get<{ triggers: Trigger[] }>("triggers", {}, signal)).triggers;

/** The newest events of all triggers, or of one or of one ticker; newest first. */
export async function storedEvents(of: { trigger?: string; ticker?: string }, limit = 200): Promise<TriggerEvent[]> {
  const conditions = [
    of.trigger && `trigger_id = ${literal(of.trigger)}`,
    of.ticker && `ticker = ${literal(of.ticker)}`,
  ].filter(Boolean);
  const where = conditions.length > 0 ? ` WHERE ${conditions.join(" AND ")}` : "";
  const columns = "trigger_id, event_id, fired_at, ticker, columns";
  const sql = `SELECT ${columns} FROM trigger_events${where} ORDER BY fired_at DESC LIMIT ${limit}`;
  return rowsOf(await runSql(sql, limit)).map((row) => {
    const parsed = (typeof row.columns === "string" ? JSON.parse(row.columns) : row.columns) as Row | Row[];
    return eventOf({ ...row, time: row.fired_at, rows: Array.isArray(parsed) ? parsed : [parsed] });
  });
}

/** Of a live message, or of a row of the table brought into its form. */
export function eventOf(row: Row): TriggerEvent {
  const rows = (row.rows ?? []) as Row[];
  const columns = rows[rows.length - 1] ?? {};
  const firedAt = seconds(String(row.time));
  return {
    id: String(row.event_id),
    trigger: String(row.trigger_id),
    ticker: String(row.ticker ?? ""),
    time: timeIn(columns) ?? firedAt,
    firedAt,
    columns,
  };
}

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;

/** The latest time among the columns: the row that decided the match. */
function timeIn(columns: Row): number | undefined {
  const times = Object.values(columns)
    .filter((value): value is string => typeof value === "string" && ISO.test(value))
    .map(seconds)
    .filter((value) => Number.isFinite(value));
  return times.length > 0 ? Math.max(...times) : undefined;
}

/** Stored events of a ticker, then live ones of every trigger that watches it. Returns what ends it. */
export function followEvents(ticker: string, take: (events: TriggerEvent[]) => void): () => void {
  const ends: (() => void)[] = [];
  let isOver = false;
  const live = (message: Message): void => {
    const event = eventOf(message);
    if (event.ticker === ticker) take([event]);
  };
  const read = (): void => {
    storedEvents({ ticker }).then((events) => !isOver && take(events), () => undefined);
  };
  read();
  listTriggers().then(
    (triggers) => {
      if (isOver) return;
      for (const trigger of triggers) {
        const watches = trigger.tickers.length === 0 || trigger.tickers.includes(ticker);
        if (watches && trigger.state === "active") ends.push(follow(`TRIGGER:${trigger.trigger_id}`, live, read));
      }
    },
    () => undefined,
  );
  return () => {
    isOver = true;
    for (const end of ends) end();
  };
}

/** Both lists as one, each event once, oldest first. */
export function eventsOf(known: TriggerEvent[], more: TriggerEvent[]): TriggerEvent[] {
  const all = new Map([...known, ...more].map((event) => [event.id, event]));
  return [...all.values()].sort((a, b) => a.firedAt - b.firedAt);
}
