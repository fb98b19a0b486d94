/** Events of triggers: stored ones, and those that fire while the page is open. */
import type { TriggerBody as Trigger } from "candlewright/api";
import { get } from "./api";
import { follow } from "./live";
import { type Refreshed, useRefreshed } from "./refreshed";
import { seconds, timesOf } from "./times";

export interface TriggerEvent {
  id: string;
  trigger: string;
  ticker: string;
  /** When it happened, by the exchange's clock; if no column has a time, when it was published. */
  time: number;
  firedAt: number;
  columns: Record<string, unknown>;
  /** Its trigger is no longer registered. */
  isRemoved?: boolean;
}

export type { Trigger };

type Row = Record<string, unknown>;

export const listTriggers = async (signal?: AbortSignal): Promise<Trigger[]> =>
  (await get<{ triggers: Trigger[] }>("triggers", {}, signal)).triggers;

const EVERY_MS = 5000;

/** The registered triggers. */
export const useTriggers = (): Refreshed<Trigger[]> => useRefreshed(listTriggers, EVERY_MS);

/** The limit of one answer, which also covers events since the trigger was listed. */
const PAGE_EVENTS = 1000;

/** The newest retained events of a trigger, oldest first. */
export async function newestEvents(trigger: Trigger, limit: number): Promise<TriggerEvent[]> {
  if (trigger.events === 0) return [];
  const path = `triggers/${encodeURIComponent(trigger.trigger_id)}/events`;
  const from_sequence = Math.max(1, trigger.events - limit + 1);
  return (await get<{ events: Row[] }>(path, { from_sequence, limit: PAGE_EVENTS })).events.map(eventOf);
}

/** The newest stored events of triggers that are no longer registered, oldest first; of one trigger if it is given. */
export async function removedEvents(trigger: string, limit: number): Promise<TriggerEvent[]> {
  const { events } = await get<{ events: Row[] }>("events", { removed: true, trigger, limit });
  return events.map((row) => ({ ...eventOf(row), isRemoved: true }));
}

/** The event in a live message. */
export function eventOf(row: Row): TriggerEvent {
  const rows = (row.rows ?? []) as Row[];
  const columns = rows[rows.length - 1] ?? {};
  const firedAt = seconds(String(row.time));
  return {
    id: String(row.event_id),
    trigger: String(row.trigger_id),
    ticker: String(row.ticker ?? ""),
    // The latest time is that of the row that decided the match.
    time: timesOf(columns).pop() ?? firedAt,
    firedAt,
    columns,
  };
}

const EVENTS_OF_EACH = 200;

/** Retained events of a ticker, then live ones, of every trigger that watches it; an empty list if there are none.
    Returns a function that stops following. */
export function followEvents(ticker: string, take: (events: TriggerEvent[]) => void): () => void {
  const ends: (() => void)[] = [];
  let isOver = false;
  const unread = new Set<string>();
  const own = (events: TriggerEvent[]): void => {
    const found = events.filter((event) => event.ticker === ticker);
    if (!isOver && (found.length > 0 || unread.size === 0)) take(found);
  };
  listTriggers().then(
    (triggers) => {
      if (isOver) return;
      const watching = triggers.filter((each) => each.tickers.length === 0 || each.tickers.includes(ticker));
      for (const each of watching) unread.add(each.trigger_id);
      if (watching.length === 0) own([]);
      for (const trigger of watching) {
        const read = (): void =>
          void newestEvents(trigger, EVENTS_OF_EACH).then(
            (events) => {
              unread.delete(trigger.trigger_id);
              own(events);
            },
            () => undefined,
          );
        ends.push(follow(`TRIGGER:${trigger.trigger_id}`, (message) => own([eventOf(message)]), read));
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
