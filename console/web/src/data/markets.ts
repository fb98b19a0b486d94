/** The markets, and what is stored for them. */
import { get } from "./api";
import { periodName, periodSeconds, seconds } from "./times";

export interface Market {
  ticker: string;
  venue: string;
  is_active: boolean;
}

/** Rows of one ticker and period in the table of bars. */
export interface Stored {
  ticker: string;
  period: number;
  rows: number;
  first: number;
  last: number;
}

export async function findMarkets(search: string, venue: string, limit: number, signal?: AbortSignal): Promise<Market[]> {
  return (await get<{ markets: Market[] }>("markets", { search, venue, limit }, signal)).markets;
}

export async function listVenues(): Promise<string[]> {
  return (await get<{ venues: { venue: string }[] }>("venues")).venues.map((each) => each.venue);
}

export async function storedBars(signal?: AbortSignal): Promise<Stored[]> {
  const { series } = await get<{ series: Record<string, string | number>[] }>("stored", {}, signal);
  return series.map((each) => ({
    ticker: String(each.ticker),
    period: Number(each.period_seconds),
    rows: Number(each.rows),
    first: seconds(String(each.first)),
    last: seconds(String(each.last)),
  }));
}

export const DEFAULT_PERIODS = ["1m", "5m", "15m", "1h", "4h", "1d"];

/** The periods to choose from: the usual ones and the stored ones. */
export function periodsToChoose(stored: Stored[], chosen: string): string[] {
  const own = stored.filter((each) => each.period > 0).map((each) => periodName(each.period));
  const names = new Set([...DEFAULT_PERIODS, ...own, chosen]);
  return [...names].sort((a, b) => periodSeconds(a) - periodSeconds(b));
}
