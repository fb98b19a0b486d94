/** Writing a trigger: errors while typing, a trial on history with a chart, registration; and the registered triggers. */
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Band } from "../chart/bands";
import type { Mark } from "../chart/marks";
import type { ChartView } from "../chart/view";
import { get, Problem, type Mistake, send } from "../data/api";
import { type Trigger, useTriggers } from "../data/events";
import { language, type Language } from "../data/language";
import { type Stored, storedBars } from "../data/markets";
import { counted, percent, whole } from "../data/numbers";
import { onOneLine, parameterNames } from "../data/parameters";
import { useMayChange } from "../data/platform";
import type { Column } from "../data/sql";
import { day, iso, moment, now, openTime, periodSeconds, seconds, span, timesOf } from "../data/times";
import { useValue } from "../data/value";
import { Editor } from "../parts/editor";
import { Explained } from "../parts/explained";
import { cell, ResultTable } from "../parts/result_table";
import { StoredChart } from "../parts/stored_chart";
import { TickerField } from "../parts/ticker_field";
import { Icon } from "../shell/icons";
import { go, place, withQuery } from "../shell/router";

interface Draft {
  id: string;
  sql: string;
  ticker: string;
  /** The period of its bars, or "trades". */
  over: string;
  parameters: Record<string, string>;
  days: number;
  destination: string;
  message: string;
}

interface Tried {
  columns: Column[];
  rows: Record<string, unknown>[];
  total_rows: number;
  fired_at: string[];
  suppressed: number;
  over: string;
  input_rows: number;
  first: string | null;
  last: string | null;
  after: { bars: number; count: number; mean: number | null; median: number | null; rose: number | null }[];
}

interface Checked {
  columns: Column[];
  warnings: string[];
}

const KEPT = "trigger";
const NOT_EXPLAINED = { explain: undefined, ticker: undefined, at: undefined };
const EXAMPLES: Record<string, Pick<Draft, "sql" | "over" | "parameters">> = {
  "A strong bar": { sql: "close > open * (1 + :rise)", over: "1m", parameters: { rise: "0.002" } },
  "Three falling bars": {
    sql: `SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES CLASSIFIER() AS variable, open_time AS at, close AS price
  ALL ROWS PER MATCH
  PATTERN (A B C)
  DEFINE A AS close < open,
         B AS close < open AND close < PREV(close),
         C AS close < open AND close < PREV(close)
) AS m`,
    over: "1m",
    parameters: {},
  },
  "V in the bars": {
    sql: `SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES A.open_time AS began, LAST(B.close) AS bottom, C.close AS back, C.open_time AS at
  PATTERN (A B{2,10} C)
  DEFINE B AS close < PREV(close),
         C AS close > A.close
) AS v`,
    over: "1m",
    parameters: {},
  },
};
const OVER = ["1m", "5m", "15m", "1h", "4h", "1d", "trades"];

export default function Triggers() {
  const { query } = useValue(place);
  const [draft, setDraft] = useState<Draft>(() => firstDraft(query.get("ticker")));
  const [known, setKnown] = useState<Language>();
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  const [checked, setChecked] = useState<Checked>();
  const [error, setError] = useState("");
  const [tried, setTried] = useState<{ result: Tried; draft: Draft }>();
  const [isBusy, setBusy] = useState(false);
  const { value: triggers, error: listError, read: readTriggers } = useTriggers();
  const [registered, setRegistered] = useState("");
  const mayChange = useMayChange();

  const wanted = query.get("explain");
  const explained = triggers?.find((each) => each.trigger_id === wanted);
  const change = (changes: Partial<Draft>): void => {
    setRegistered("");
    setDraft((old) => ({ ...old, ...changes }));
  };
  const names = useMemo(() => parameterNames(draft.sql), [draft.sql]);
  const body = { sql: draft.sql, tickers: draft.ticker ? [draft.ticker] : [], parameters: parametersOf(draft, names) };

  useEffect(() => void language().then(setKnown), []);
  useEffect(() => {
    if (draft.ticker !== "") return;
    const choose = (rows: Stored[]): void => {
      const { ticker } = rows.find((each) => each.period === periodSeconds(draft.over)) ?? rows[0] ?? draft;
      setDraft((old) => (old.ticker === "" ? { ...old, ticker } : old));
    };
    storedBars().then(choose, () => undefined);
  }, []);
  useEffect(() => {
    localStorage.setItem(KEPT, JSON.stringify(draft));
    const abort = new AbortController();
    const timer = setTimeout(() => {
      if (draft.sql.trim() === "") return;
      send<Checked>("POST", "triggers/check", body, abort.signal).then(
        (answer) => {
          setChecked(answer);
          setMistakes([]);
          setError("");
        },
        (problem: Problem) => {
          if (abort.signal.aborted) return;
          setChecked(undefined);
          setMistakes(problem.mistakes.filter((each) => each.line !== undefined));
          setError(problem.message);
        },
      );
    }, 250);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [JSON.stringify(body)]);

  const tryIt = (): void => {
    if (isBusy || checked === undefined) return;
    setBusy(true);
    setError("");
    const { tickers: _, ...text } = body;
    const since = iso(Math.floor(now() - draft.days * 86400));
    send<Tried>("POST", "triggers/try", { ...text, ticker: draft.ticker, since, limit: 10_000 })
      .then(
        (result) => {
          setTried({ result, draft });
          go(withQuery(NOT_EXPLAINED), true);
        },
        (problem: Problem) => setError(problem.message),
      )
      .finally(() => setBusy(false));
  };
  const arm = (): void => {
    const parameters = { ...body.parameters };
    if (draft.destination) parameters.alert_to = draft.destination;
    if (draft.message) parameters.alert_message = draft.message;
    setBusy(true);
    send<Trigger>("POST", "triggers", { ...body, parameters, ...(draft.id && { trigger_id: draft.id }) })
      .then(
        (trigger) => {
          setRegistered(trigger.trigger_id);
          readTriggers();
        },
        (problem: Problem) => setError(problem.message),
      )
      .finally(() => setBusy(false));
  };

  return (
    <div class="page triggers">
      <div class="page-head">
        <h1>Triggers</h1>
        <select
          aria-label="Example"
          value=""
          onChange={(event) => {
            const example = EXAMPLES[event.currentTarget.value];
            if (example) change(example);
          }}
        >
          <option value="">Examples</option>
          {Object.keys(EXAMPLES).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </div>
      <div class="workbench">
        <div class="bench-left">
          <section class="card editor-card" aria-label="Text of the trigger">
            <Editor
              text={draft.sql}
              label="SQL of the trigger"
              hint="close > open * 1.01"
              language={known}
              mistakes={mistakes}
              change={(sql) => change({ sql })}
              run={tryIt}
            />
          </section>
          <p class={`verdict ${error ? "bad" : checked ? "good" : "muted"}`} role="status">
            {error || (checked ? verdict(checked) : "Checking")}
          </p>
          {checked?.warnings.map((warning) => (
            <p key={warning} class="verdict warn">
              {warning}
            </p>
          ))}
          <div class="row end">
            <TickerField value={draft.ticker} change={(ticker) => change({ ticker })} />
            <label>
              Over
              <select value={draft.over} onChange={(event) => change({ over: event.currentTarget.value })}>
                {OVER.map((each) => (
                  <option key={each} value={each}>
                    {each === "trades" ? "trades" : `${each} bars`}
                  </option>
                ))}
              </select>
            </label>
            {names.map((name) => (
              <label key={name}>
                :{name}
                <input
                  size={8}
                  value={draft.parameters[name] ?? ""}
                  onInput={(event) => change({ parameters: { ...draft.parameters, [name]: event.currentTarget.value } })}
                />
              </label>
            ))}
            <label>
              Last days
              <input
                type="number"
                min={1}
                max={3650}
                value={draft.days}
                onInput={(event) => change({ days: Math.max(1, Number(event.currentTarget.value) || 1) })}
              />
            </label>
            <button type="button" class="primary" disabled={isBusy || !checked || !draft.ticker} onClick={tryIt}>
              <Icon name="play" /> Try on history <kbd>Ctrl ↵</kbd>
            </button>
            {!draft.ticker && <small>Choose a market to try it.</small>}
          </div>
          {mayChange && (
            <details class="card arm">
              <summary>Register it</summary>
              <div class="card-body stack">
                <div class="row end">
                  <label>
                    Name
                    <input value={draft.id} placeholder="generated" onInput={(event) => change({ id: event.currentTarget.value })} />
                  </label>
                </div>
                <Destinations chosen={draft.destination} choose={(destination) => change({ destination })} />
                <label>
                  Alert text
                  <input
                    value={draft.message}
                    placeholder="{{ ticker }} closed at {{ close }}"
                    onInput={(event) => change({ message: event.currentTarget.value })}
                  />
                </label>
                <div class="row">
                  <button type="button" class="primary" disabled={isBusy || !checked} onClick={arm}>
                    <Icon name="bell" /> Register
                  </button>
                  {registered && (
                    <span role="status" class="good">
                      {registered} is registered.
                    </span>
                  )}
                </div>
              </div>
            </details>
          )}
          <Running triggers={triggers} listError={listError} load={(trigger) => setDraft(draftOf(trigger, draft))} changed={readTriggers} />
        </div>
        <div class="bench-right">
          {isBusy && <div class="waiting" aria-busy="true" />}
          {explained ? (
            <Explained
              trigger={explained}
              ticker={query.get("ticker") ?? explained.tickers[0] ?? ""}
              at={query.get("at") ?? ""}
              close={() => go(withQuery(NOT_EXPLAINED))}
            />
          ) : wanted !== null && triggers !== undefined ? (
            <p class="nothing">
              {wanted} is not registered, and only a registered trigger can be explained.{" "}
              <a href={`/events?trigger=${encodeURIComponent(wanted)}`}>Its stored events</a>
            </p>
          ) : tried ? (
            <Outcome tried={tried.result} draft={tried.draft} />
          ) : (
            <p class="nothing">The matches of a trial on stored history appear here.</p>
          )}
        </div>
      </div>
    </div>
  );
}

/** The destinations that get the trigger's events: the chosen ones, or those of the routes. */
function Destinations(props: { chosen: string; choose: (destination: string) => void }) {
  const [known, setKnown] = useState<{ name: string; service: string }[]>([]);
  useEffect(() => {
    get<{ destinations: { name: string; service: string }[] }>("alerts").then(
      ({ destinations }) => setKnown(destinations),
      () => undefined,
    );
  }, []);
  if (known.length === 0) {
    return <p class="muted">To get alerts, configure a destination: a group [alerts.NAME] in the platform's settings.</p>;
  }
  const chosen = props.chosen.split(",").map((name) => name.trim()).filter(Boolean);
  const toggle = (name: string): void =>
    props.choose((chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]).join(","));
  return (
    <fieldset class="row">
      <legend>Send alerts to</legend>
      {known.map(({ name, service }) => (
        <label key={name} class="check">
          <input type="checkbox" checked={chosen.includes(name)} onChange={() => toggle(name)} />
          {name} <small class="muted">{service}</small>
        </label>
      ))}
      {chosen.length === 0 && <small class="muted">none chosen: the routes in the settings apply</small>}
    </fieldset>
  );
}

function Outcome({ tried, draft }: { tried: Tried; draft: Draft }) {
  const [shown, setShown] = useState<number>();
  const count = tried.fired_at.length;
  const range = tried.first && tried.last ? seconds(tried.last) - seconds(tried.first) : 0;
  return (
    <>
      <section class="card facts" aria-label="Result of the trial">
        <p>
          <b>{whole(count)}</b> {count === 1 ? "match" : "matches"}
          {count > 1 && range > 0 && <small>one each {span(range / count)}</small>}
        </p>
        <p>
          <b>{whole(tried.input_rows)}</b> {draft.over === "trades" ? "trades" : "bars"} read
          {tried.first && <small>since {day(seconds(tried.first))}</small>}
        </p>
        {tried.suppressed > 0 && (
          <p>
            <b>{whole(tried.suppressed)}</b> suppressed by the cooldown
          </p>
        )}
        {tried.after.map((each) => (
          <p key={each.bars}>
            <b class={(each.mean ?? 0) >= 0 ? "up" : "down"}>{each.mean === null ? "–" : percent(each.mean, 3)}</b>
            <small>after {each.bars} bars</small>
            <small>
              {each.rose === null ? "" : `rose in ${Math.round(each.rose * 100)} % of ${each.count}`}
            </small>
          </p>
        ))}
      </section>
      <MatchChart tried={tried} draft={draft} shown={shown} />
      <section class="card rows" aria-label="Rows">
        {tried.rows.length === 0 ? (
          <p class="nothing">Nothing matched.</p>
        ) : (
          <ResultTable
            columns={tried.columns}
            rows={tried.rows}
            label="Rows of the matches; select one to see it on the chart"
            choose={(row) => setShown(timesOf(row).pop())}
          />
        )}
      </section>
      {tried.total_rows > tried.rows.length && (
        <p class="muted">The first {whole(tried.rows.length)} of {counted(tried.total_rows, "row")}.</p>
      )}
    </>
  );
}

/** The bars of the trial with its matches: an arrow for each event, a letter for each row of a pattern. */
function MatchChart({ tried, draft, shown }: { tried: Tried; draft: Draft; shown: number | undefined }) {
  const name = draft.over === "trades" ? "1m" : draft.over;
  const period = periodSeconds(name);
  const draw = useCallback(
    (chart: ChartView) => ({ marks: marksOf(tried, period, chart), bands: bandsOf(tried, period, chart) }),
    [tried],
  );
  const last = tried.fired_at.at(-1);
  const [around, before, after] = shown === undefined ? [last && seconds(last), 60, 30] : [shown, 40, 40];
  return (
    <StoredChart
      ticker={draft.ticker}
      period={name}
      range={
        tried.first && tried.last
          ? { from: openTime(seconds(tried.first), period), to: seconds(tried.last) + period }
          : undefined
      }
      draw={draw}
      shown={around ? { from: around - before * period, to: around + after * period } : undefined}
      name="Matches on the chart"
      description={`${counted(tried.fired_at.length, "match", "matches")} on the candles of ${draft.ticker}`}
    />
  );
}

const COLORS = ["a", "b", "c", "d"] as const;
const MOST_MARKS = 5000;

function marksOf(tried: Tried, period: number, chart: ChartView): Mark[] {
  const variable = variableColumn(tried);
  const marks: Mark[] = [];
  if (variable !== undefined) {
    const names = [...new Set(tried.rows.map((row) => String(row[variable])))];
    for (const row of tried.rows.slice(0, MOST_MARKS)) {
      const time = timesOf(row)[0];
      if (time === undefined) continue;
      const name = String(row[variable]);
      const color = chart.color(COLORS[names.indexOf(name) % COLORS.length]!);
      marks.push({ time: openTime(time, period), text: name, color, shape: "circle", isAbove: true });
    }
  }
  for (const time of tried.fired_at.slice(-MOST_MARKS)) {
    marks.push({ time: openTime(seconds(time), period), text: "", color: chart.color("accent") });
  }
  return marks.sort((a, b) => a.time - b.time);
}

/** Rows with more than one time show the span of their match. */
function bandsOf(tried: Tried, period: number, chart: ChartView): Band[] {
  if (variableColumn(tried) !== undefined) return [];
  return tried.rows.slice(-MOST_MARKS).flatMap((row) => {
    const times = timesOf(row);
    if (times.length < 2) return [];
    const from = openTime(times[0]!, period);
    return [{ from, to: openTime(times[times.length - 1]!, period) + period, color: chart.color("accent") }];
  });
}

/** The column of CLASSIFIER(), if the rows have one. */
function variableColumn(tried: Tried): string | undefined {
  return tried.columns.find(
    ({ name }) =>
      /variable|classifier|label/i.test(name) &&
      tried.rows.every((row) => /^[A-Za-z_]\w{0,15}$/.test(String(row[name]))),
  )?.name;
}

function Running(props: {
  triggers: Trigger[] | undefined;
  listError: string;
  load: (trigger: Trigger) => void;
  changed: () => void;
}) {
  const [failed, setFailed] = useState("");
  const error = failed || props.listError;
  const mayChange = useMayChange();
  const remove = (trigger: Trigger): void => {
    if (!confirm(`Remove the trigger ${trigger.trigger_id}?`)) return;
    setFailed("");
    send("DELETE", `triggers/${encodeURIComponent(trigger.trigger_id)}`).then(props.changed, (problem: Problem) =>
      setFailed(problem.message),
    );
  };
  return (
    <section class="card" aria-labelledby="running">
      <h2 id="running">Registered</h2>
      {error && (
        <p class="card-body verdict bad" role="alert">
          {error}
        </p>
      )}
      {props.triggers?.length === 0 && <p class="nothing">No trigger is registered.</p>}
      <ul class="running">
        {props.triggers?.map((trigger) => (
          <li key={trigger.trigger_id}>
            <button type="button" class="quiet" onClick={() => props.load(trigger)} title={trigger.sql}>
              <i class={`dot ${trigger.state === "active" ? "good" : "bad"}`} />
              <b>{trigger.trigger_id}</b>
            </button>
            <a class="tag" href={`/events?trigger=${encodeURIComponent(trigger.trigger_id)}`}>
              {counted(trigger.events, "event")}
            </a>
            <a class="tag" href={withQuery({ ...NOT_EXPLAINED, explain: trigger.trigger_id })}>
              Explain<span class="unseen"> {trigger.trigger_id}</span>
            </a>
            {mayChange && (
              <button type="button" class="quiet square danger" onClick={() => remove(trigger)}>
                <Icon name="close" />
                <span class="unseen">Remove {trigger.trigger_id}</span>
              </button>
            )}
            <code>{onOneLine(trigger.sql)}</code>
            <small>
              {trigger.tickers.join(", ") || "all active markets"}
              {trigger.state !== "active" && <span class="bad"> {trigger.state}: {trigger.reason}</span>}
              {` · since ${moment(seconds(trigger.registered_at))}`}
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function verdict(checked: Checked): preact.ComponentChildren {
  const names = checked.columns.map(({ name }) => name);
  return names.length > 0 ? <>Valid: returns {cell(names.join(", "))}</> : "Valid";
}

function parametersOf(draft: Draft, names: string[]): Record<string, string> {
  const given = names.flatMap((name) => (draft.parameters[name] ? [[name, draft.parameters[name]]] : []));
  const period = draft.over === "trades" ? [] : [["period_seconds", String(periodSeconds(draft.over))]];
  return Object.fromEntries([...given, ...period]);
}

function firstDraft(ticker: string | null): Draft {
  const kept = localStorage.getItem(KEPT);
  const example = EXAMPLES["A strong bar"]!;
  const fresh: Draft = { id: "", ticker: "", days: 7, destination: "", message: "", ...example };
  let draft = fresh;
  try {
    if (kept !== null) draft = { ...fresh, ...(JSON.parse(kept) as Draft) };
  } catch {
    // Stored by another version.
  }
  return ticker === null ? draft : { ...draft, ticker };
}

function draftOf(trigger: Trigger, old: Draft): Draft {
  const { period_seconds, alert_to, alert_message, ...parameters } = trigger.parameters;
  const over = OVER.find((each) => each !== "trades" && String(periodSeconds(each)) === period_seconds) ?? "trades";
  return {
    ...old,
    id: trigger.trigger_id,
    sql: trigger.sql,
    ticker: trigger.tickers[0] ?? old.ticker,
    over,
    parameters,
    destination: alert_to ?? "",
    message: alert_message ?? "",
  };
}
