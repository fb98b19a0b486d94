/** Ctrl+K: finds a market by part of its name, or a page. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { findMarkets, storedBars, type Stored } from "../data/markets";
import { periodName } from "../data/times";
import { Dialog } from "./dialog";
import { chartOf, go } from "./router";

interface Entry {
  to: string;
  text: string;
  note: string;
}

const SHOWN = 12;

export function Palette({ pages, close }: { pages: { path: string; name: string; key: string }[]; close: () => void }) {
  const [text, setText] = useState("");
  const [stored, setStored] = useState<Stored[]>([]);
  const [found, setFound] = useState<string[]>([]);
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLUListElement>(null);

  useEffect(() => {
    storedBars().then(setStored, () => undefined);
  }, []);
  useEffect(() => {
    if (text.trim() === "") {
      setFound([]);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      findMarkets(text.trim(), "", SHOWN, abort.signal).then(
        (rows) => setFound(rows.map((each) => each.ticker)),
        () => undefined,
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  const entries = useMemo(() => entriesOf(text, pages, stored, found), [text, stored, found]);
  useEffect(() => setChosen(0), [text]);
  useEffect(() => {
    list.current?.children[chosen]?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  const open = (entry: Entry | undefined): void => {
    if (entry === undefined) return;
    close();
    go(entry.to);
    // What had the focus may not be on the page that is opened.
    document.getElementById("main")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setChosen((at) => Math.min(at + 1, entries.length - 1));
    else if (event.key === "ArrowUp") setChosen((at) => Math.max(at - 1, 0));
    else if (event.key === "Enter") open(entries[chosen]);
    else return;
    event.preventDefault();
  };

  return (
    <Dialog title="Find" close={close}>
      <input
        class="wide"
        autofocus
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={entries[chosen] ? `found-${chosen}` : undefined}
        aria-label="Market or page"
        placeholder="BTC, ETH/USDT, KRAKEN, or a page"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <ul id="found" class="found" role="listbox" aria-label="Found" ref={list}>
        {entries.map((entry, at) => (
          <li
            key={entry.to}
            id={`found-${at}`}
            role="option"
            aria-selected={at === chosen}
            onClick={() => open(entry)}
            onMouseMove={() => setChosen(at)}
          >
            <span>{entry.text}</span>
            <small>{entry.note}</small>
          </li>
        ))}
      </ul>
      {entries.length === 0 && <p class="muted">Nothing matches “{text}”.</p>}
    </Dialog>
  );
}

function entriesOf(
  text: string,
  pages: { path: string; name: string; key: string }[],
  stored: Stored[],
  found: string[],
): Entry[] {
  const words = text.trim().toUpperCase().split(/\s+/);
  const fits = (name: string): boolean => words.every((word) => name.toUpperCase().includes(word));
  const periods = new Map<string, Stored[]>();
  for (const each of stored) periods.set(each.ticker, [...(periods.get(each.ticker) ?? []), each]);
  const tickers = [...new Set([...periods.keys(), ...found])].filter(fits).slice(0, SHOWN);
  const markets = tickers.map((ticker) => {
    const own = (periods.get(ticker) ?? []).filter((each) => each.period > 0);
    const best = own.find((each) => each.period === 60) ?? own[0];
    const note = own.map((each) => periodName(each.period)).join(" ") || "not stored";
    return { to: chartOf(ticker, best ? periodName(best.period) : "1m"), text: ticker, note };
  });
  const own = pages.filter((each) => fits(each.name));
  return [...markets, ...own.map((each) => ({ to: each.path, text: each.name, note: `g ${each.key}` }))];
}
