/** How numbers are shown. */

export function price(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const digits = size >= 1000 ? 2 : size >= 1 ? 4 : Math.min(10, 5 - Math.floor(Math.log10(size || 1)));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(2, digits), maximumFractionDigits: digits });
}

/** Prices shown next to each other, all with the same number of digits. */
export function prices(values: number[]): string[] {
  const digits = Math.max(...values.map((each) => price(each).split(".")[1]?.length ?? 0));
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return values.map((each) => (Number.isFinite(each) ? each.toLocaleString("en", format) : price(each)));
}

/** Two digits after the point, and as many more as a small number needs to differ from zero. */
export function compact(value: number): string {
  const isSmall = value !== 0 && Math.abs(value) < 0.1;
  return value.toLocaleString("en", { notation: "compact", ...(isSmall ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 2 }) });
}

export const whole = (value: number): string => value.toLocaleString("en", { maximumFractionDigits: 0 });

/** For example 1 bar, 2,000 bars. */
export const counted = (value: number, one: string, many = `${one}s`): string => `${whole(value)} ${value === 1 ? one : many}`;

export function percent(value: number, digits = 2): string {
  return `${value >= 0 ? "+" : "−"}${(Math.abs(value) * 100).toFixed(digits)} %`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(value < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/** The number of digits after the point needed to distinguish these prices. */
export function precisionOf(values: number[]): number {
  let digits = 0;
  for (const value of values) {
    const point = String(value).indexOf(".");
    const text = value.toString();
    if (text.includes("e-")) return 10;
    if (point >= 0) digits = Math.max(digits, text.length - point - 1);
  }
  return Math.min(10, digits);
}
