/** Known problems of stored data: missed trades and corrected bars. */
import { get } from "./api";
import { periodName, seconds } from "./times";

export interface Gap {
  from: number;
  to: number;
  missing: number | null;
  isRepaired: boolean;
  reason: string;
}

type Row = Record<string, unknown>;

export async function tradeGaps(ticker: string): Promise<Gap[]> {
  try {
    const { rows } = await get<{ rows: Row[] }>("gaps", { ticker });
    return rows.map((row) => ({
      from: seconds(String(row.from_ts)),
      to: seconds(String(row.to_ts)),
      missing: row.missing === null || row.missing === undefined ? null : Number(row.missing),
      isRepaired: row.repaired === true,
      reason: String(row.reason ?? ""),
    }));
  } catch {
    return [];
  }
}

/** Open times of corrected bars, with their newest revision. */
export async function revisedBars(ticker: string, period: number): Promise<Map<number, number>> {
  try {
    const { rows } = await get<{ rows: Row[] }>("revisions", { ticker, period: periodName(period) });
    return new Map(rows.map((row) => [seconds(String(row.open_time)), Number(row.revision)]));
  } catch {
    return new Map();
  }
}
