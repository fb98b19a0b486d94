/** The address is the state of the page, so that it can be reloaded, bookmarked and shared. */
import { Value } from "../data/value";

export interface Place {
  path: string;
  query: URLSearchParams;
}

const current = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) });

export const place = new Value<Place>(current());
addEventListener("popstate", () => place.set(current()));

/** `replace`: adds no entry to the browser's history. */
export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  place.set(current());
}

/** The same page with some parameters changed; undefined removes one. */
export function withQuery(changes: Record<string, string | string[] | undefined>): string {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each !== undefined) query.append(name, each);
  }
  const text = query.toString();
  return location.pathname + (text && `?${text}`);
}

export const chartOf = (ticker: string, period = "1m", more: Record<string, string> = {}): string =>
  `/chart?${new URLSearchParams({ ticker, period, ...more })}`;

export const qualityOf = (ticker: string, period: string): string => `/quality?${new URLSearchParams({ ticker, period })}`;

/** Links of the application change the page without loading it. */
export function interceptLinks(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || link.origin !== location.origin || link.target || link.download) return;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.defaultPrevented) return;
  if (link.pathname.startsWith("/api/") || link.pathname.includes(".")) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
