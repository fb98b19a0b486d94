/** How near a registered trigger came to firing: its attempts on the chart, and each condition with its values. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ChartView } from "../chart/view";
import type { Problem } from "../data/api";
import type { Trigger } from "../data/events";
import {
  type Attempt,
  type Condition,
  type Explanation,
  type Row,
  type Stage,
  type Tested,
  drawnBars,
  drawnPeriod,
  explainTrigger,
  linesOf,
  stretchOf,
} from "../data/explain";
import { counted, whole } from "../data/numbers";
import { minute, moment, openTime, periodSeconds, seconds } from "../data/times";
import { Icon } from "../shell/icons";
import { go, withQuery } from "../shell/router";
import { cell } from "./result_table";
import { StoredChart } from "./stored_chart";
import { TickerField } from "./ticker_field";

interface Props {
  trigger: Trigger;
  ticker: string;
  /** ISO text; empty means now. */
  at: string;
  close: () => void;
}

const ATTEMPTS = [3, 10, 50];
const COLORS = ["a", "b", "c", "d"] as const;
const OUTCOMES: Record<string, [string, string]> = {
  matched: ["matched", "good"],
  failed: ["failed", "bad"],
  expired: ["too late", "bad"],
  waiting: ["open", "warn"],
};

export function Explained({ trigger, ticker, at, close }: Props) {
  const [found, setFound] = useState<Explanation>();
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [attempts, setAttempts] = useState(ATTEMPTS[0]!);
  const [chosen, setChosen] = useState<Attempt>();
  const head = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a narrow screen it is below the list of triggers.
    if (head.current!.getBoundingClientRect().bottom > innerHeight) head.current!.scrollIntoView();
  }, [trigger.trigger_id]);
  useEffect(() => {
    const abort = new AbortController();
    setBusy(true);
    setError("");
    explainTrigger(trigger.trigger_id, { ticker, at: at && utc(at), attempts }, abort.signal)
      .then(
        (answer) => {
          setFound(answer);
          setChosen(mostTelling(answer));
        },
        (problem: Problem) => {
          if (abort.signal.aborted) return;
          setFound(undefined);
          setError(problem.message);
        },
      )
      .finally(() => !abort.signal.aborted && setBusy(false));
    return () => abort.abort();
  }, [trigger.trigger_id, ticker, at, attempts]);
  const ask = (changes: Record<string, string | undefined>): void => go(withQuery(changes), true);

  return (
    <>
      {isBusy && <div class="waiting" aria-busy="true" />}
      <section ref={head} class="card explain-head" aria-label="Explanation settings">
        <h2>
          Why <b>{trigger.trigger_id}</b> fired, or did not
        </h2>
        <div class="row end">
          {trigger.tickers.length > 1 ? (
            <label>
              On
              <select value={ticker} onChange={(event) => ask({ ticker: event.currentTarget.value })}>
                {trigger.tickers.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
          ) : (
            trigger.tickers.length === 0 && <TickerField label="On" value={ticker} change={(name) => ask({ ticker: name })} />
          )}
          <label>
            Until (UTC)
            <input
              type="datetime-local"
              step={1}
              value={at && utc(at).slice(0, 19)}
              onChange={(event) => ask({ at: event.currentTarget.value || undefined })}
            />
          </label>
          <label>
            Attempts
            <select value={attempts} onChange={(event) => setAttempts(Number(event.currentTarget.value))}>
              {ATTEMPTS.map((each) => (
                <option key={each} value={each}>
                  nearest {each}
                </option>
              ))}
            </select>
          </label>
          <div class="spring" />
          <button type="button" class="quiet square" onClick={close}>
            <Icon name="close" />
            <span class="unseen">Close the explanation</span>
          </button>
        </div>
        {error && (
          <p class="bad" role="alert">
            {error}
          </p>
        )}
        {found && (
          <p class="muted">
            Fired <b>{whole(found.fired)}</b> {found.fired === 1 ? "time" : "times"} over {whole(found.rows)} {found.over}
            {found.first && found.last && ` from ${minute(seconds(found.first))} to ${minute(seconds(found.last))}`}
            {found.first && found.first < trigger.registered_at && ", rows from before its registration included"}
          </p>
        )}
      </section>
      {found && <AttemptChart found={found} ticker={ticker} chosen={chosen} choose={setChosen} />}
      {found?.stages.map((stage, at) => (
        <StageCard key={at} stage={stage} chosen={chosen} choose={setChosen} />
      ))}
    </>
  );
}

/** A time without a zone is UTC. */
const utc = (time: string): string => (/Z|[+-]\d\d:?\d\d$/.test(time) ? time : `${time}Z`);

/** The nearest failed attempt, otherwise an open or matched one. */
function mostTelling(found: Explanation): Attempt | undefined {
  const all = [...found.stages].reverse().flatMap(({ attempts }) => attempts);
  return all.find(({ outcome }) => outcome === "failed" || outcome === "expired") ?? all[0];
}

function AttemptChart(props: {
  found: Explanation;
  ticker: string;
  chosen: Attempt | undefined;
  choose: (attempt: Attempt) => void;
}) {
  const { found, chosen } = props;
  const name = drawnPeriod(found.over);
  const period = periodSeconds(name);
  const all = useMemo(() => found.stages.flatMap(({ attempts }) => attempts), [found]);
  // Rows of several tickers may be combined; the chart shows the ticker of the selected attempt.
  const ticker = String(chosen?.key.ticker ?? (props.ticker || found.tickers[0] || ""));
  const draw = useCallback((chart: ChartView) => drawingOf(all, chosen, period, chart), [all, chosen, period]);
  if (ticker === "" || !found.first || !found.last) return null;
  const choose = (time: number): void => {
    const hit = all.filter((attempt) => {
      const { from, to } = stretchOf(attempt) ?? { from: Infinity, to: 0 };
      return openTime(from, period) <= time && time <= to;
    });
    const next = hit[(hit.indexOf(chosen!) + 1) % hit.length];
    if (next !== undefined) props.choose(next);
  };
  return (
    <StoredChart
      ticker={ticker}
      period={name}
      range={{
        from: openTime(seconds(found.first), period) - 30 * period,
        to: seconds(found.last) + period,
      }}
      draw={draw}
      shown={chosen && stretchOf(chosen)}
      name="Attempts on the chart"
      description={`${counted(all.length, "attempt")} on the candles of ${ticker}`}
      click={choose}
    />
  );
}

/** The rows of the selected attempt in the colours of their variables, hatched where it failed; other attempts are shaded. */
function drawingOf(all: Attempt[], chosen: Attempt | undefined, period: number, chart: ChartView) {
  const bands = all.flatMap((attempt) => {
    const stretch = attempt === chosen ? undefined : stretchOf(attempt);
    if (stretch === undefined) return [];
    const color = chart.color(attempt.outcome === "matched" ? "accent" : "muted");
    return [{ from: openTime(stretch.from, period), to: openTime(stretch.to, period) + period, color }];
  });
  if (chosen === undefined) return { marks: [], bands };
  const bars = drawnBars(chosen, period);
  const colorOf = (variable: number): string =>
    variable < 0 ? chart.color("down") : chart.color(COLORS[variable % COLORS.length]!);
  const rows = bars.map(({ time, variable }) => ({
    from: time,
    to: time + period,
    color: colorOf(variable),
    hatched: variable < 0,
  }));
  const marks = bars.map(({ time, text, variable }) => ({
    time,
    text,
    color: colorOf(variable),
    isAbove: variable >= 0,
    shape: variable < 0 ? ("square" as const) : ("circle" as const),
  }));
  if (chosen.outcome === "matched") {
    const end = stretchOf(chosen);
    if (end) marks.push({ ...arrow, time: openTime(end.to, period), color: chart.color("accent") });
  }
  return { marks, bands: [...rows, ...bands] };
}

const arrow = { text: "fired", isAbove: false, shape: "arrowUp" as "circle" | "square" };

function StageCard(props: { stage: Stage; chosen: Attempt | undefined; choose: (attempt: Attempt) => void }) {
  const { stage } = props;
  const isPattern = stage.kind === "MATCH_RECOGNIZE";
  const passed = isPattern ? counted(stage.passed, "match", "matches") : `${whole(stage.passed)} passed`;
  return (
    <section class="card stage" aria-label={stage.kind}>
      <h2>
        {stage.kind}{" "}
        <small>
          {counted(stage.rows, "row")}: {passed}, {isPattern ? `${counted(stage.failed, "attempt")} failed` : `${whole(stage.failed)} did not pass`}
          {stage.examined < stage.failed && `, of which the newest ${whole(stage.examined)} were compared`}
        </small>
      </h2>
      <code>{stage.text}</code>
      {stage.attempts.map((attempt, at) => {
        const isChosen = attempt === props.chosen;
        const [word, kind] = OUTCOMES[attempt.outcome] ?? [attempt.outcome, ""];
        return (
          <div key={at} class="attempt">
            <button type="button" class="quiet" aria-expanded={isChosen} onClick={() => props.choose(attempt)}>
              <span class={`tag ${kind}`}>{word}</span>
              {attempt.start && <time>{moment(seconds(attempt.start))}</time>}
              <span class="muted">
                {Object.values(attempt.key).map(String).join(" ")}
                {isPattern && ` · ${counted(attempt.taken, "row")} taken`}
                {attempt.missing > 0 && `, at least ${whole(attempt.missing)} more needed`}
              </span>
            </button>
            {isChosen && <AttemptDetails attempt={attempt} isPattern={isPattern} />}
          </div>
        );
      })}
    </section>
  );
}

function AttemptDetails({ attempt, isPattern }: { attempt: Attempt; isPattern: boolean }) {
  const names = [...new Set(attempt.rows.map((row) => row.variable))];
  return (
    <div class="attempt-details">
      {attempt.rows.length > 0 && (
        <ol class="attempt-rows" aria-label="Matched rows">
          {attempt.rows.map((row, at) => (
            <li key={at}>
              <b class={`variable-${COLORS[names.indexOf(row.variable) % COLORS.length]}`}>{row.variable}</b> <RowText row={row} />
            </li>
          ))}
        </ol>
      )}
      {attempt.nearest[0]?.row && isPattern && (
        <p>
          {attempt.outcome === "failed" ? "It failed at" : "It came closest at"} <RowText row={attempt.nearest[0].row} />
        </p>
      )}
      {attempt.nearest.map((test, at) => (
        <Test key={at} test={test} words={isPattern ? "which is not" : ""} />
      ))}
      {attempt.outcome === "expired" && attempt.nearest.length === 0 && attempt.deadline && (
        <p>No further row arrived before {moment(seconds(attempt.deadline))}.</p>
      )}
      {attempt.outcome === "waiting" && isPattern && (
        <>
          <p>
            It waits for the next row{attempt.deadline && ` before ${moment(seconds(attempt.deadline))}`}
            {attempt.awaits.length > 0 && ", as"}
          </p>
          {attempt.awaits.map((test, at) => (
            <Test key={at} test={test} words="" />
          ))}
          {attempt.can_end && <p>Unless the next row continues it, the rows so far are a match.</p>}
        </>
      )}
    </div>
  );
}

function RowText({ row }: { row: Row }) {
  return (
    <>
      {row.time && <time>{moment(seconds(row.time))}</time>}{" "}
      {Object.entries(row.values).map(([name, value]) => (
        <span key={name} class="pair">
          <i>{name}</i> {cell(value)}
        </span>
      ))}
    </>
  );
}

function Test({ test, words }: { test: Tested; words: string }) {
  return (
    <div class="test">
      {test.variable && (
        <p>
          {words} <b>{test.variable}</b>
          {test.condition === null && ": any row"}
        </p>
      )}
      {test.condition && <Lines of={test.condition} />}
    </div>
  );
}

function Lines({ of }: { of: Condition }) {
  return (
    <ul>
      {linesOf(of).map((each, at) => (
        <li key={at}>
          <Verdict condition={each} /> <code>{each.text}</code>
          <small>
            {each.operands
              .filter((operand) => operand.is_known)
              .map((operand) => (
                <span key={operand.text} class="pair">
                  <i>{operand.text}</i> {cell(operand.value)}
                </span>
              ))}
          </small>
          {each.parts.length > 0 && each.parts.map((part, place) => <Lines key={place} of={part} />)}
        </li>
      ))}
    </ul>
  );
}

/** Unknown because of a NULL, or because a row has not arrived. */
function Verdict({ condition }: { condition: Condition }) {
  if (condition.holds !== null) {
    return condition.holds ? <b class="good">true</b> : <b class="bad">false</b>;
  }
  const isOpen = condition.operands.some((each) => !each.is_known) || condition.parts.length > 0;
  return <b class="muted">{isOpen ? "open" : "NULL"}</b>;
}
