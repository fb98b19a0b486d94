/** Times of the API are ISO 8601 with nanoseconds; charts use seconds since the epoch. Everything is shown in UTC. */

export const seconds = (iso: string): number => Date.parse(iso) / 1000;
export const iso = (time: number): string => new Date(time * 1000).toISOString();
export const now = (): number => Date.now() / 1000;

const two = (value: number): string => String(value).padStart(2, "0");

export function day(time: number): string {
  const at = new Date(time * 1000);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
}

export function clock(time: number, withSeconds = true): string {
  const at = new Date(time * 1000);
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${withSeconds ? `:${two(at.getUTCSeconds())}` : ""}`;
}

export const minute = (time: number): string => `${day(time)} ${clock(time, false)}`;
export const moment = (time: number): string => `${day(time)} ${clock(time)}`;

/** For example 12 s, 5 min, 3 h, 9 d. */
export function span(value: number): string {
  const size = Math.abs(value);
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 90) return `${Math.round(size)} s`;
  if (size < 5400) return `${Math.round(size / 60)} min`;
  if (size < 48 * 3600) return `${Math.round(size / 3600)} h`;
  return `${Math.round(size / 86400).toLocaleString("en")} d`;
}

const PERIODS: [string, number][] = [
  ["w", 604800],
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

export function periodSeconds(text: string): number {
  const found = /^(\d+)([smhdw])$/.exec(text);
  const unit = PERIODS.find(([name]) => name === found?.[2]);
  return found && unit ? Number(found[1]) * unit[1] : 60;
}

export function periodName(size: number): string {
  const [name, unit] = PERIODS.find(([, each]) => size % each === 0) ?? ["s", 1];
  return `${size / unit}${name}`;
}

/** Weeks begin on Monday; the epoch began on a Thursday. */
const MONDAY = 4 * 86400;

export function openTime(time: number, period: number): number {
  const shift = period % 604800 === 0 ? MONDAY : 0;
  return Math.floor((time - shift) / period) * period + shift;
}

/** Columns with the time at which a row was stored or received, not that of the event. */
const OF_STORING = new Set(["updated_at", "received_at", "known_at", "detected_at"]);
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;

/** The times among the columns of a row, in order. */
export function timesOf(row: Record<string, unknown>): number[] {
  return Object.entries(row)
    .filter(([name, value]) => !OF_STORING.has(name) && typeof value === "string" && ISO.test(value))
    .map(([, value]) => seconds(value as string))
    .filter((value) => Number.isFinite(value))
    .sort((a, b) => a - b);
}
