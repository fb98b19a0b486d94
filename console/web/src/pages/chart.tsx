/** `/chart?ticker=T&period=1m`; several tickers are a grid of charts. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Trade } from "../chart/candles";
import { ChartPanel } from "../chart/panel";
import type { TriggerEvent } from "../data/events";
import { storedBars } from "../data/markets";
import { compact, prices } from "../data/numbers";
import { clock, day, seconds } from "../data/times";
import { useValue } from "../data/value";
import { chartOf, go, place, withQuery } from "../shell/router";

const MOST_CHARTS = 20;

export default function ChartPage() {
  const { query } = useValue(place);
  const tickers = [...new Set(query.getAll("ticker"))].slice(0, MOST_CHARTS);
  const period = query.get("period") ?? "1m";
  const at = query.get("at");
  const isOne = tickers.length === 1;

  useEffect(() => {
    if (tickers.length > 0) document.title = `${tickers[0]} ${period} · candlewright`;
    else storedBars().then((rows) => rows[0] && go(chartOf(rows[0].ticker), true), () => undefined);
  }, [tickers.join(), period]);

  if (tickers.length === 0) {
    return (
      <div class="page">
        <h1>Chart</h1>
        <p>
          Choose a market: press <kbd>/</kbd> or see <a href="/markets">Markets</a>.
        </p>
      </div>
    );
  }
  const choosePeriod = (chosen: string): void => go(withQuery({ period: chosen, at: undefined }));
  if (isOne) return <OneChart key={tickers[0]} ticker={tickers[0]!} period={period} at={at} choosePeriod={choosePeriod} />;
  return (
    <div class="chart-grid" data-count={tickers.length}>
      {tickers.map((ticker) => (
        <ChartPanel
          key={`${ticker} ${period}`}
          ticker={ticker}
          period={period}
          isSmall
          choosePeriod={choosePeriod}
          close={() => go(withQuery({ ticker: tickers.filter((each) => each !== ticker) }))}
        />
      ))}
    </div>
  );
}

const SHOWN_TRADES = 60;

function OneChart(props: { ticker: string; period: string; at: string | null; choosePeriod: (period: string) => void }) {
  const [events, setEvents] = useState<TriggerEvent[]>();
  const tape = useRef<((trades: Trade[]) => void) | undefined>(undefined);
  const at = props.at === null ? undefined : seconds(props.at);
  return (
    <div class="chart-page">
      <ChartPanel
        key={`${props.period} ${props.at}`}
        ticker={props.ticker}
        period={props.period}
        at={Number.isFinite(at) ? at : undefined}
        choosePeriod={props.choosePeriod}
        trades={(trades) => tape.current?.(trades)}
        events={setEvents}
      />
      <aside class="chart-side">
        <section aria-labelledby="matches">
          <h2 id="matches">Matches</h2>
          <ul class="matches" tabIndex={0} aria-label="Matches of triggers, newest first">
            {events?.length === 0 && <li class="muted">No registered trigger has fired on this market.</li>}
            {[...(events ?? [])].reverse().slice(0, 50).map((event) => (
              <li key={event.id}>
                <a href={withQuery({ at: new Date(event.time * 1000).toISOString() })}>
                  <b>{event.trigger}</b>
                  <time>
                    {day(event.time).slice(5)} {clock(event.time)}
                  </time>
                </a>
              </li>
            ))}
          </ul>
        </section>
        <Tape take={tape} />
      </aside>
    </div>
  );
}

function Tape({ take }: { take: { current: ((trades: Trade[]) => void) | undefined } }) {
  const [trades, setTrades] = useState<Trade[]>([]);
  useEffect(() => {
    let waiting: Trade[] = [];
    let timer = 0;
    take.current = (more) => {
      waiting.push(...more.slice(-SHOWN_TRADES));
      timer ||= window.setTimeout(() => {
        const added = waiting.reverse();
        waiting = [];
        timer = 0;
        setTrades((known) => [...added, ...known].slice(0, SHOWN_TRADES));
      }, 150);
    };
    return () => {
      clearTimeout(timer);
      take.current = undefined;
    };
  }, []);
  const shown = prices(trades.map((trade) => trade.price));
  return (
    <section class="tape" aria-labelledby="tape">
      <h2 id="tape">Trades</h2>
      {trades.length === 0 ? (
        <p class="muted">No trades since this page was opened.</p>
      ) : (
        <div class="tape-rows" tabIndex={0} role="region" aria-label="Latest trades">
          <table>
            <tbody>
              {trades.map((trade, at) => (
                <tr key={`${trade.id} ${trade.time}`}>
                  <td>{clock(trade.time)}</td>
                  <td class={trade.side === "sell" ? "down" : "up"}>{shown[at]}</td>
                  <td>{compact(trade.size)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
