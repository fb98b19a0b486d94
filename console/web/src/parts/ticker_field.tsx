/** A ticker field that suggests the stored ones. */
import { useEffect, useState } from "preact/hooks";
import { storedBars } from "../data/markets";

export function TickerField(props: { value: string; change: (ticker: string) => void; label?: string }) {
  const [known, setKnown] = useState<string[]>([]);
  useEffect(() => {
    storedBars().then((rows) => setKnown([...new Set(rows.map((each) => each.ticker))]), () => undefined);
  }, []);
  return (
    <label>
      {props.label ?? "Market"}
      <input
        list="tickers"
        size={20}
        spellcheck={false}
        placeholder="BTC/USDT.BINANCE"
        value={props.value}
        onInput={(event) => props.change(event.currentTarget.value.trim())}
      />
      <datalist id="tickers">
        {known.map((ticker) => (
          <option key={ticker} value={ticker} />
        ))}
      </datalist>
    </label>
  );
}
