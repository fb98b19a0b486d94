/** Searches all markets of all venues by part of their name; stored ones come first, with their age. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Problem } from "../data/api";
import { findMarkets, listVenues, storedBars, type Market, type Stored } from "../data/markets";
import { counted, whole } from "../data/numbers";
import { useRefreshed } from "../data/refreshed";
import { minute, now, periodName, span } from "../data/times";
import { useValue } from "../data/value";
import { Icon } from "../shell/icons";
import { useShortcuts } from "../shell/keys";
import { chartOf, go, place, withQuery } from "../shell/router";

interface Line {
  ticker: string;
  venue: string;
  isActive: boolean;
  periods: Stored[];
  trades: number;
  rows: number;
  first: number;
  last: number;
}

const SHOWN = 200;
const EVERY_MS = 10_000;

export default function Markets() {
  const { query } = useValue(place);
  const text = query.get("q") ?? "";
  const venue = query.get("venue") ?? "";
  const { value: stored, error: storedError } = useRefreshed(storedBars, EVERY_MS);
  const [found, setFound] = useState<Market[]>([]);
  const [venues, setVenues] = useState<string[]>([]);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [foundError, setFoundError] = useState("");
  const error = foundError || storedError;
  const field = useRef<HTMLInputElement>(null);

  useEffect(() => {
    listVenues().then(setVenues, () => undefined);
  }, []);
  useEffect(() => {
    setFoundError("");
    if (text === "" && venue === "") {
      setFound([]);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      findMarkets(text, venue, SHOWN, abort.signal).then(setFound, (problem: Problem) => {
        if (!abort.signal.aborted) setFoundError(problem.message);
      });
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, venue]);
  useShortcuts([{ keys: "f", text: "Search the markets", run: () => field.current?.focus() }]);

  const lines = useMemo(() => linesOf(stored ?? [], found, text, venue), [stored, found, text, venue]);
  const allVenues = [...new Set([...venues, ...(stored ?? []).map((each) => each.ticker.split(".").pop()!)])].sort();
  const choose = (ticker: string): void => {
    const next = new Set(chosen);
    if (!next.delete(ticker)) next.add(ticker);
    setChosen(next);
  };

  return (
    <div class="page full">
      <div class="page-head">
        <h1>Markets</h1>
        <input
          ref={field}
          class="grow"
          type="search"
          aria-label="Search the markets"
          placeholder="Search: BTC, ETH/USDT, KRAKEN"
          value={text}
          onInput={(event) => go(withQuery({ q: event.currentTarget.value || undefined }), true)}
        />
        <select
          aria-label="Venue"
          value={venue}
          onChange={(event) => go(withQuery({ venue: event.currentTarget.value || undefined }), true)}
        >
          <option value="">All venues</option>
          {allVenues.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
        <div class="spring" />
        {chosen.size > 1 && (
          <button class="primary" type="button" onClick={() => go(withTickers([...chosen]))}>
            <Icon name="chart" /> {chosen.size} charts side by side
          </button>
        )}
      </div>
      {error && (
        <p class="notice bad" role="alert">
          {error}
        </p>
      )}
      <section class="card scroll" aria-label="Markets">
        {stored === undefined && !error && <div class="waiting" aria-busy="true" />}
        <table class="markets">
          <thead>
            <tr>
              <th class="pick">
                <span class="unseen">Choose</span>
              </th>
              <th>Market</th>
              <th>Stored bars</th>
              <th class="number wide-only">Rows</th>
              <th class="number wide-only">Trades</th>
              <th class="wide-only">From</th>
              <th class="wide-only">Until</th>
              <th>Newest</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line) => (
              <tr key={line.ticker}>
                <td class="pick">
                  <input
                    type="checkbox"
                    aria-label={`Choose ${line.ticker}`}
                    checked={chosen.has(line.ticker)}
                    onChange={() => choose(line.ticker)}
                  />
                </td>
                <td>
                  <a class="market" href={chartOf(line.ticker, periodName(best(line)))}>
                    <b>{line.ticker.replace(/\.[^.]+$/, "")}</b> <small>{line.venue}</small>
                  </a>
                  {!line.isActive && <span class="tag">not traded</span>}
                </td>
                <td>
                  {line.periods.length === 0 ? (
                    <span class="muted">–</span>
                  ) : (
                    line.periods.map((each) => (
                      <a
                        key={each.period}
                        class="tag"
                        href={chartOf(line.ticker, periodName(each.period))}
                        title={`${counted(each.rows, "bar")}, ${minute(each.first)} to ${minute(each.last)}`}
                      >
                        {periodName(each.period)}
                      </a>
                    ))
                  )}
                </td>
                <td class="number wide-only">{line.rows ? whole(line.rows) : ""}</td>
                <td class="number wide-only">{line.trades ? whole(line.trades) : ""}</td>
                <td class="wide-only muted">{line.rows ? minute(line.first) : ""}</td>
                <td class="wide-only muted">{line.rows ? minute(line.last) : ""}</td>
                <td>{line.rows > 0 && <Freshness line={line} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {stored !== undefined && lines.length === 0 && (
          <p class="nothing">
            {text || venue
              ? "No market matches."
              : "Nothing is stored yet. Search for a market, open its chart, and request its history."}
          </p>
        )}
      </section>
    </div>
  );
}

/** Green if the newest bar is at most two periods old, amber up to a day, otherwise grey. */
function Freshness({ line }: { line: Line }) {
  const age = Math.max(0, now() - line.last - best(line));
  const kind = age <= 2 * best(line) + 5 ? "good" : age < 86400 ? "warn" : "";
  return (
    <span class="fresh">
      <i class={`dot ${kind}`} /> {span(age)} ago
    </span>
  );
}

const best = (line: Line): number => line.periods[0]?.period ?? 60;

const withTickers = (tickers: string[]): string =>
  `/chart?${new URLSearchParams([...tickers.map((each) => ["ticker", each]), ["period", "1m"]])}`;

function linesOf(stored: Stored[], found: Market[], text: string, venue: string): Line[] {
  const lines = new Map<string, Line>();
  const line = (ticker: string): Line => {
    const known = lines.get(ticker);
    if (known !== undefined) return known;
    const made = { ticker, venue: ticker.split(".").pop()!, isActive: true, periods: [], trades: 0, rows: 0, first: 0, last: 0 };
    lines.set(ticker, made);
    return made;
  };
  const words = text.toUpperCase().split(/\s+/);
  for (const each of stored) {
    if (!words.every((word) => each.ticker.toUpperCase().includes(word))) continue;
    if (venue !== "" && !each.ticker.endsWith(`.${venue}`)) continue;
    const own = line(each.ticker);
    if (each.period === 0) own.trades = each.rows;
    else own.periods.push(each);
  }
  for (const own of lines.values()) {
    own.periods.sort((a, b) => a.period - b.period);
    own.rows = own.periods.reduce((sum, each) => sum + each.rows, 0);
    own.first = Math.min(...own.periods.map((each) => each.first));
    own.last = Math.max(...own.periods.map((each) => each.last));
  }
  for (const market of found) line(market.ticker).isActive = market.is_active;
  return [...lines.values()].slice(0, SHOWN);
}
