/** Stored bars and trades, and the same from live topics. */
import type { Bar, Trade } from "../chart/candles";
import { get, send } from "./api";
import { type Message, follow } from "./live";
import { iso, seconds } from "./times";

type Row = Record<string, unknown>;

/** Where a chart reads stored rows and follows topics. */
export interface Source {
  get: typeof get;
  follow: typeof follow;
}

/** The platform that serves this page. */
export const platform: Source = { get, follow };

export const barsTopic = (ticker: string, period: number): string => `OHLC:${ticker}:${period}`;
export const ticksTopic = (ticker: string): string => `TICKS:${ticker}`;

export function barOf(row: Row): Bar {
  return {
    time: seconds(String(row.open_time)),
    open: Number(row.open),
    high: Number(row.high),
    low: Number(row.low),
    close: Number(row.close),
    volume: Number(row.volume),
    source: String(row.source ?? ""),
    revision: Number(row.revision ?? 0),
    isForming: row.complete === false,
  };
}

/** The stored rows of one ticker. */
export class StoredRows {
  constructor(
    readonly ticker: string,
    private readonly source: Source = platform,
  ) {}

  /** The newest `limit` bars before `end`, oldest first. */
  async newest(period: string, limit: number, end?: number, signal?: AbortSignal): Promise<Bar[]> {
    const query = { ticker: this.ticker, period, limit, order: "last", end: end === undefined ? undefined : iso(end) };
    return (await this.source.get<{ rows: Row[] }>("bars", query, signal)).rows.map(barOf);
  }

  async between(period: string, start: number, end?: number, signal?: AbortSignal): Promise<Bar[]> {
    const all: Bar[] = [];
    const limit = 10_000;
    const until = end === undefined ? undefined : iso(end);
    for (let from = start; ; ) {
      const query = { ticker: this.ticker, period, limit, start: iso(from), end: until };
      const rows = (await this.source.get<{ rows: Row[] }>("bars", query, signal)).rows.map(barOf);
      all.push(...rows);
      if (rows.length < limit) return all;
      from = rows[rows.length - 1]!.time + 1;
    }
  }

  async trades(start: number, end: number, signal?: AbortSignal): Promise<Trade[]> {
    const query = { ticker: this.ticker, start: iso(start), end: iso(end), limit: 10_000 };
    return (await this.source.get<{ rows: Row[] }>("ticks", query, signal)).rows.map(tradeOf);
  }
}

function tradeOf(row: Row): Trade {
  return {
    time: seconds(String(row.ts ?? row.timestamp)),
    price: Number(row.price),
    size: Number(row.size),
    side: String(row.side ?? "unknown").toLowerCase(),
    id: String(row.trade_id ?? ""),
  };
}

/** The trades of a message of a TICKS topic. */
export function tradesOf(message: Message): Trade[] {
  return ((message.ticks ?? []) as Row[]).map(tradeOf);
}

export interface RequestState {
  request_id: string;
  state: string;
  done_candles: number;
  expected_candles: number;
  reason: string;
  notification: { status: string; error_message: string; row_count: number } | null;
}

/** Requests a range from the exchange and follows the request to its end. Throws Problem if it ends in an error. */
export async function fetchHistory(
  request: { ticker: string; period: string; start: number; end: number },
  progress: (state: RequestState) => void,
): Promise<RequestState> {
  const body = { ...request, start: iso(request.start), end: iso(request.end) };
  const { request_id } = await send<{ request_id: string }>("POST", "history", body);
  for (;;) {
    const state = await get<RequestState>(`history/${encodeURIComponent(request_id)}`);
    progress(state);
    if (state.state !== "queued" && state.state !== "running") return state;
    await new Promise((done) => setTimeout(done, 400));
  }
}
