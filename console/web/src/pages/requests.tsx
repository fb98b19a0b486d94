/** Historical requests: submitting them, their progress, and the days of a market that they have covered. */
import type { RequestRow as Request } from "candlewright/api";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Problem, get, send } from "../data/api";
import { type Covered, coveredDays } from "../data/coverage";
import { counted, whole } from "../data/numbers";
import { useMayChange } from "../data/platform";
import { useRefreshed } from "../data/refreshed";
import { day, iso, minute, periodSeconds, seconds } from "../data/times";
import { useValue } from "../data/value";
import { Calendar } from "../parts/calendar";
import { TickerField } from "../parts/ticker_field";
import { Icon } from "../shell/icons";
import { chartOf, go, place, withQuery } from "../shell/router";

const PERIODS = ["1m", "5m", "15m", "1h", "4h", "1d"];
const EVERY_MS = 1500;
const SHOWN = 200;

const listRequests = async (): Promise<Request[]> =>
  ordered((await get<{ requests: Request[] }>("history", { limit: SHOWN })).requests);

export default function Requests() {
  const { query } = useValue(place);
  const ticker = query.get("ticker") ?? "";
  const period = query.get("period") ?? "1m";
  const mayChange = useMayChange();
  const { value: requests, error, read } = useRefreshed(listRequests, EVERY_MS);
  const finished = requests?.filter((each) => each.state === "done").length ?? 0;
  useEffect(() => {
    const newest = requests?.find((each) => each.ticker !== null);
    if (ticker === "" && newest) go(withQuery({ ticker: newest.ticker!, period: newest.period ?? "1m" }), true);
  }, [requests, ticker]);

  return (
    <div class="page">
      <div class="page-head">
        <h1>Requests</h1>
      </div>
      {mayChange && <NewRequest ticker={ticker} period={period} sent={read} />}
      {error && (
        <p class="notice bad" role="alert">
          {error}
        </p>
      )}
      {ticker && <Coverage key={`${ticker} ${period}`} ticker={ticker} period={period} version={finished} />}
      <section class="card scroll" aria-labelledby="requests" tabIndex={0}>
        <h2 id="requests">Requested</h2>
        <table>
          <thead>
            <tr>
              <th>Market</th>
              <th class="wide-only">Period</th>
              <th class="wide-only">From</th>
              <th class="wide-only">Until</th>
              <th>State</th>
              <th class="wide-only">Request</th>
            </tr>
          </thead>
          <tbody>
            {requests?.map((request) => (
              <tr key={request.request_id}>
                <td>
                  {request.ticker && <a href={chartOf(request.ticker, chartPeriod(request))}>{request.ticker}</a>}
                  <small class="narrow-only">
                    {request.period}
                    {request.start && `, ${minute(seconds(request.start))}`}
                    {request.end && ` to ${minute(seconds(request.end))}`}
                  </small>
                </td>
                <td class="wide-only">{request.period}</td>
                <td class="wide-only">{request.start && minute(seconds(request.start))}</td>
                <td class="wide-only">{request.end && minute(seconds(request.end))}</td>
                <td>
                  <State request={request} changed={read} />
                </td>
                <td class="wide-only">
                  <code class="muted">{request.request_id}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {requests?.length === 0 && <p class="nothing">No history has been requested.</p>}
      </section>
    </div>
  );
}

/** Live requests have neither a range nor an end. */
const isLive = (request: Request): boolean =>
  request.state !== "done" && request.start === null && request.expected_candles === null && request.ticker !== null;
/** The platform's own requests, which it repeats while the topic has readers. */
const isOfTopic = (request: Request): boolean => request.request_id.startsWith("subscription:");

const chartPeriod = (request: Request): string => (/^\d/.test(request.period ?? "") ? request.period! : "1m");

/** Requests under way first, live ones last; finished ones by their end, newest first. */
function ordered(requests: Request[]): Request[] {
  const open = requests.filter((each) => each.state !== "done" && !isLive(each));
  const done = requests.filter((each) => each.state === "done").reverse();
  return [...open, ...done, ...requests.filter(isLive)];
}

function State({ request, changed }: { request: Request; changed: () => void }) {
  const [error, setError] = useState("");
  const mayChange = useMayChange();
  if (request.state === "done") {
    const kind = request.status === "OK" ? "good" : request.status === "NOT_FOUND" ? "" : "bad";
    return (
      <>
        <span class={`tag ${kind}`}>{request.status ?? "done"}</span>{" "}
        <small>
          {request.done_candles !== null && counted(request.done_candles, "bar")}
          {(request.holes ?? 0) > 0 && `, ${counted(request.holes ?? 0, "hole")}`} {request.reason}
        </small>
      </>
    );
  }
  const expected = request.expected_candles ?? 0;
  const done = request.done_candles ?? 0;
  return (
    <span class="row">
      {expected > 0 ? <progress max={expected} value={done} aria-label={`Progress of ${request.request_id}`} /> : null}
      {isLive(request) && <span class="tag">live</span>}
      <small>{expected > 0 ? `${whole(done)} of ${whole(expected)}` : request.state}</small>
      {mayChange && !isOfTopic(request) && (
        <button
          type="button"
          class="quiet square danger"
          onClick={() =>
            send("DELETE", `history/${encodeURIComponent(request.request_id)}`).then(changed, (problem: Problem) =>
              setError(problem.message),
            )
          }
        >
          <Icon name="close" />
          <span class="unseen">Cancel {request.request_id}</span>
        </button>
      )}
      <small class={error ? "bad" : ""}>{error || request.reason}</small>
    </span>
  );
}

function NewRequest(props: { ticker: string; period: string; sent: () => void }) {
  const today = Math.floor(Date.now() / 86_400_000) * 86400;
  const [start, setStart] = useState(day(today - 86400));
  const [end, setEnd] = useState(day(today));
  const [error, setError] = useState("");
  const submit = (event: Event): void => {
    event.preventDefault();
    const body = { ticker: props.ticker, period: props.period, start: iso(seconds(start)), end: iso(seconds(end)) };
    setError("");
    send("POST", "history", body).then(props.sent, (problem: Problem) => setError(problem.message));
  };
  return (
    <form class="card card-body row end" onSubmit={submit}>
      <TickerField value={props.ticker} change={(ticker) => go(withQuery({ ticker }), true)} />
      <label>
        Period
        <select value={props.period} onChange={(event) => go(withQuery({ period: event.currentTarget.value }), true)}>
          {[...new Set([...PERIODS, props.period])].map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      <label>
        From
        <input type="date" required value={start} onInput={(event) => setStart(event.currentTarget.value)} />
      </label>
      <label>
        Until
        <input type="date" required value={end} onInput={(event) => setEnd(event.currentTarget.value)} />
      </label>
      <button class="primary" type="submit" disabled={!props.ticker || !start || !end}>
        <Icon name="requests" /> Get history
      </button>
      {error && (
        <span class="bad" role="alert">
          {error}
        </span>
      )}
    </form>
  );
}

const SHOWN_YEARS = 4;

/** A calendar for each year: how much of every day finished requests have proven complete. */
function Coverage({ ticker, period, version }: { ticker: string; period: string; version: number }) {
  const [rows, setRows] = useState<Covered[]>();
  useEffect(() => {
    get<{ rows: Covered[] }>("coverage", { ticker }).then(
      (answer) => setRows(answer.rows.filter((each) => each.period_seconds === periodSeconds(period))),
      () => setRows([]),
    );
  }, [ticker, period, version]);
  const days = useMemo(() => coveredDays(rows ?? []), [rows]);
  return (
    <section class="card" aria-labelledby="coverage">
      <h2 id="coverage">
        Coverage of <b>{ticker}, {period}</b>
      </h2>
      {rows !== undefined && days.size === 0 && <p class="nothing">No finished request covers this market and period.</p>}
      <Calendar days={days} textOf={(_, share) => `${Math.floor(share * 100)} %`} mostYears={SHOWN_YEARS} />
    </section>
  );
}
