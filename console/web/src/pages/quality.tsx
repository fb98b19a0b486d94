/** How good the stored candles of a market are: what is missing and why, and what looks wrong. */
import type { QualityBody as Found } from "candlewright/api";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Problem, get } from "../data/api";
import { periodsToChoose, storedBars, type Stored } from "../data/markets";
import { compact, counted, percent, whole } from "../data/numbers";
import { day, iso, minute, periodName, periodSeconds, seconds } from "../data/times";
import { useValue } from "../data/value";
import { Calendar } from "../parts/calendar";
import { TickerField } from "../parts/ticker_field";
import { chartOf, go, place, withQuery } from "../shell/router";

/** The longest range that the API compares with trades. */
const TRADES_SECONDS = 31 * 86400;
/** The most candles that the API examines at once; without a start, the newest. */
const MOST_CANDLES = 1_000_000;
const SHOWN_RANGES = 50;

export default function Quality() {
  const { query } = useValue(place);
  const ticker = query.get("ticker") ?? "";
  const period = query.get("period") ?? "1m";
  const start = query.get("start") ?? "";
  const end = query.get("end") ?? "";
  const [stored, setStored] = useState<Stored[]>([]);
  const [found, setFound] = useState<Found>();
  const [traded, setTraded] = useState<Found>();
  const [error, setError] = useState("");

  useEffect(() => {
    storedBars().then(
      (rows) => {
        const first = rows.find((each) => each.period > 0);
        setStored(rows);
        if (ticker === "" && first) go(withQuery({ ticker: first.ticker, period: periodName(first.period) }), true);
      },
      (problem: Problem) => setError(problem.message),
    );
  }, []);
  useEffect(() => {
    setFound(undefined);
    setTraded(undefined);
    setError("");
    if (ticker === "") return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      examine({ ticker, period, start, end }, abort.signal, setFound, setTraded).catch((problem: Problem) => {
        if (!abort.signal.aborted) setError(problem.message);
      });
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [ticker, period, start, end]);

  const first = stored.find((each) => each.ticker === ticker && each.period === periodSeconds(period))?.first;
  const hasOlder = first !== undefined && start === "" && typeof found?.first === "string" && first < seconds(found.first);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Quality</h1>
      </div>
      <div class="card card-body row end">
        <TickerField value={ticker} change={(value) => go(withQuery({ ticker: value }), true)} />
        <label>
          Period
          <select value={period} onChange={(event) => go(withQuery({ period: event.currentTarget.value }), true)}>
            {periodsToChoose(stored.filter((each) => each.ticker === ticker), period).map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {(["start", "end"] as const).map((name) => (
          <label key={name}>
            {name === "start" ? "From" : "Until"}
            <input
              type="date"
              value={query.get(name) ?? ""}
              onChange={(event) => go(withQuery({ [name]: event.currentTarget.value || undefined }), true)}
            />
          </label>
        ))}
      </div>
      {error && (
        <p class="notice bad" role="alert">
          {error}
        </p>
      )}
      {hasOlder && (
        <p class="notice">
          Candles are stored since {minute(first)}; these are the newest of them.{" "}
          <a href={withQuery({ start: day(first), end: day(first + MOST_CANDLES * periodSeconds(period)) })}>Examine the oldest</a>
        </p>
      )}
      {found ? <Examined found={found} traded={traded} period={period} /> : ticker && !error && <div class="waiting" aria-busy="true" />}
    </div>
  );
}

/** First the problems of the candles, then the comparison of the newest ones with trades, which takes longer. */
async function examine(
  asked: { ticker: string; period: string; start: string; end: string },
  signal: AbortSignal,
  take: (found: Found) => void,
  takeTraded: (found: Found) => void,
): Promise<void> {
  const found = await get<Found>("quality", asked, signal);
  take(found);
  if (found.first === null || found.last === null) return;
  const until = seconds(found.last) + 1;
  const since = Math.max(seconds(found.first), until - TRADES_SECONDS);
  takeTraded(await get<Found>("quality", { ...asked, start: iso(since), end: iso(until), trades: true }, signal));
}

function Examined({ found, traded, period }: { found: Found; traded: Found | undefined; period: string }) {
  const days = useMemo(() => new Map(found.days.map((each) => [seconds(each.day) / 86400, each])), [found]);
  const shares = useMemo(() => new Map([...days].map(([day, { got, holes, expected }]) => [day, (got + holes) / expected])), [days]);
  if (found.first === null || found.last === null) {
    return (
      <p class="card nothing">
        No {period} candles of {found.ticker} are stored in this range.{" "}
        <a href={`/requests?${new URLSearchParams({ ticker: found.ticker, period })}`}>Request history</a>
      </p>
    );
  }
  const textOf = (day: number): string => {
    const own = days.get(day);
    if (own === undefined) return "not examined";
    return `${whole(own.got)} of ${counted(own.expected, "candle")}${own.holes > 0 ? `, ${whole(own.holes)} absent at the venue` : ""}`;
  };
  return (
    <>
      <section class="card" aria-labelledby="problems">
        <h2 id="problems">
          Problems, {minute(seconds(found.first))} to {minute(seconds(found.last))}
        </h2>
        <ul class="card-body">
          {found.problems.length === 0 && <li class="good">No problems found</li>}
          {found.problems.map((each) => (
            <li key={each} class="bad">
              {each}
            </li>
          ))}
        </ul>
      </section>
      <Facts found={found} traded={traded} />
      <section class="card" aria-labelledby="calendar">
        <h2 id="calendar">Known candles of each day</h2>
        <Calendar days={shares} textOf={textOf} />
      </section>
      <div class="lists">
        {found.unknown_ranges.length > 0 && <NotStored found={found} period={period} />}
        {found.outliers.length > 0 && <Jumps found={found} period={period} />}
      </div>
    </>
  );
}

function Facts({ found, traded }: { found: Found; traded: Found | undefined }) {
  const sources = Object.entries(found.sources).map(([name, count]) => `${name} ${whole(count)}`);
  return (
    <section class="card facts" aria-label="Figures">
      <Fact value={found.rows} name="candles" more={sources.join(", ")} />
      <Fact value={found.unknown} name="not stored" isBad={found.unknown > 0} />
      <Fact value={found.holes} name="absent at the venue" />
      <Fact value={found.incomplete} name="incomplete" isBad={found.incomplete > 0} />
      <Fact
        value={found.without_trades}
        name="without trades"
        more={found.longest_without_trades > 0 ? `at most ${whole(found.longest_without_trades)} in a row` : ""}
      />
      <Fact value={found.revised} name="corrected later" />
      <Fact
        value={found.gaps_open}
        name="open gaps in live trades"
        more={found.gaps_repaired > 0 ? `${whole(found.gaps_repaired)} repaired` : ""}
        isBad={found.gaps_open > 0}
      />
      <Compared traded={traded} />
    </section>
  );
}

function Fact(props: { value: number | string; name: string; more?: string; isBad?: boolean }) {
  return (
    <p>
      <b class={props.isBad ? "bad" : ""}>{typeof props.value === "number" ? whole(props.value) : props.value}</b> {props.name}
      {props.more && <small>{props.more}</small>}
    </p>
  );
}

/** The exchange's candles compared with those made from received trades. */
function Compared({ traded }: { traded: Found | undefined }) {
  if (traded === undefined) return <p class="muted">Comparing with received trades</p>;
  const { trades, delay_ms: delay } = traded;
  const differs = [
    ...(trades?.price_differs ? [`${whole(trades.price_differs)} with other prices`] : []),
    ...(trades?.volume_differs
      ? [`${whole(trades.volume_differs)} with another volume, by up to ${compact((trades.volume_off ?? 0) * 100)} %`]
      : []),
  ];
  return (
    <>
      {trades !== null && trades.compared > 0 ? (
        <Fact
          value={`${whole(trades.equal)} of ${whole(trades.compared)}`}
          name="equal to received trades"
          more={[`since ${minute(seconds(traded.first!))}`, ...differs].join("; ")}
          isBad={differs.length > 0}
        />
      ) : (
        <p class="muted">No candle can be compared with received trades</p>
      )}
      {delay && <Fact value={`${compact(delay.median)} ms`} name="from trade to receipt" more={`99 %: ${compact(delay.p99)} ms`} />}
    </>
  );
}

function NotStored({ found, period }: { found: Found; period: string }) {
  const more = found.unknown_ranges.length - SHOWN_RANGES;
  return (
    <section class="card scroll" aria-labelledby="missing" tabIndex={0}>
      <h2 id="missing">Not stored</h2>
      <table>
        <thead>
          <tr>
            <th>From</th>
            <th>Until</th>
            <th class="number">Candles</th>
          </tr>
        </thead>
        <tbody>
          {found.unknown_ranges.slice(0, SHOWN_RANGES).map(({ start, end }) => (
            <tr key={start}>
              <td>
                <a href={chartOf(found.ticker, period, { at: start })}>{minute(seconds(start))}</a>
              </td>
              <td>{minute(seconds(end))}</td>
              <td class="number">{whole((seconds(end) - seconds(start)) / periodSeconds(period))}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="card-body muted">
        {more > 0 && `The first ${SHOWN_RANGES}. `}
        <a href={`/requests?${new URLSearchParams({ ticker: found.ticker, period })}`}>Request history</a>
      </p>
    </section>
  );
}

function Jumps({ found, period }: { found: Found; period: string }) {
  return (
    <section class="card scroll" aria-labelledby="jumps" tabIndex={0}>
      <h2 id="jumps">Price jumps</h2>
      <table>
        <thead>
          <tr>
            <th>Candle</th>
            <th class="number">Close moved by</th>
          </tr>
        </thead>
        <tbody>
          {found.outliers.map(({ time, move }) => (
            <tr key={time}>
              <td>
                <a href={chartOf(found.ticker, period, { at: time })}>{minute(seconds(time))}</a>
              </td>
              <td class="number">{move === null ? "–" : percent(move)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.outlier_count > found.outliers.length && (
        <p class="card-body muted">
          The {found.outliers.length} largest of {whole(found.outlier_count)}
        </p>
      )}
    </section>
  );
}
