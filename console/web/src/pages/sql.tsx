/** SQL over the tables: an editor with completion, results as a table or a plot, export as CSV or JSON. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Mistake, Problem } from "../data/api";
import { language, type Language } from "../data/language";
import { counted } from "../data/numbers";
import { type Column, type SqlAnswer, rowsOf, runSql } from "../data/sql";
import { Editor } from "../parts/editor";
import { csv, download, ResultTable } from "../parts/result_table";
import { Plot, plottable } from "../parts/plot";
import { Icon } from "../shell/icons";

const KEPT = "sql";
const FIRST = `SELECT ticker, period_seconds, count(*) AS candles, min(open_time) AS oldest, max(open_time) AS newest
FROM ohlc
GROUP BY ALL
ORDER BY candles DESC`;
const LIMIT = 10_000;

export default function Sql() {
  const [text, setText] = useState(() => localStorage.getItem(KEPT) ?? FIRST);
  const [known, setKnown] = useState<Language>();
  const [answer, setAnswer] = useState<{ columns: Column[]; rows: Record<string, unknown>[]; took: number; isCut: boolean }>();
  const [error, setError] = useState("");
  const [mistakes, setMistakes] = useState<Mistake[]>([]);
  const [form, setForm] = useState<"table" | "plot">("table");
  const [running, setRunning] = useState<AbortController>();
  const stop = useRef<AbortController>(undefined);

  useEffect(() => void language().then(setKnown), []);
  useEffect(() => () => stop.current?.abort(), []);
  const run = (): void => {
    stop.current?.abort();
    const abort = new AbortController();
    stop.current = abort;
    setRunning(abort);
    setError("");
    setMistakes([]);
    localStorage.setItem(KEPT, text);
    const began = performance.now();
    runSql(text, LIMIT, abort.signal)
      .then(
        (found: SqlAnswer) => {
          const took = (performance.now() - began) / 1000;
          setAnswer({ columns: found.columns, rows: rowsOf(found), took, isCut: found.truncated === true });
        },
        (problem: Problem) => {
          if (abort.signal.aborted) return;
          setError([problem.message, problem.hint].filter(Boolean).join(" "));
          setMistakes((problem.mistakes ?? []).filter((each) => each.line > 0));
        },
      )
      .finally(() => stop.current === abort && setRunning(undefined));
  };
  const canPlot = useMemo(() => answer !== undefined && plottable(answer.columns, answer.rows), [answer]);
  const tables = Object.entries(known?.tables ?? {});

  return (
    <div class="page sql">
      <aside class="card tables" aria-labelledby="tables">
        <h2 id="tables">Tables</h2>
        {known === undefined && <div class="waiting" aria-busy="true" />}
        {tables.map(([name, columns]) => (
          <details key={name}>
            <summary>{name}</summary>
            <ul>
              {columns.map((column) => (
                <li key={column}>{column}</li>
              ))}
            </ul>
          </details>
        ))}
      </aside>
      <div class="sql-main">
        <div class="page-head">
          <h1>SQL</h1>
          <button class="primary" type="button" onClick={run}>
            <Icon name="play" /> Run <kbd>Ctrl ↵</kbd>
          </button>
          {running && (
            <button
              type="button"
              onClick={() => {
                running.abort();
                setRunning(undefined);
              }}
            >
              Cancel
            </button>
          )}
          <span class={error ? "bad" : "muted"} role="status">
            {error || (answer && !running && summary(answer))}
          </span>
          <div class="spring" />
          {answer && answer.rows.length > 0 && (
            <>
              <div class="segments" role="group" aria-label="Result view">
                <button type="button" aria-pressed={form === "table"} onClick={() => setForm("table")}>
                  Table
                </button>
                <button type="button" aria-pressed={form === "plot"} disabled={!canPlot} onClick={() => setForm("plot")}>
                  Plot
                </button>
              </div>
              <button
                type="button"
                class="quiet"
                onClick={() => download("result.csv", "text/csv", csv(answer.columns, answer.rows))}
              >
                <Icon name="save" /> CSV
              </button>
              <button
                type="button"
                class="quiet"
                onClick={() => download("result.json", "application/json", JSON.stringify(answer.rows))}
              >
                <Icon name="save" /> JSON
              </button>
            </>
          )}
        </div>
        <section class="card editor-card" aria-label="Text of the query">
          <Editor text={text} label="SQL" language={known} mistakes={mistakes} change={setText} run={run} />
        </section>
        {running && <div class="waiting" aria-busy="true" />}
        <section class="card rows" aria-label="Result">
          {answer === undefined ? (
            <p class="nothing">The result of the query appears here.</p>
          ) : answer.rows.length === 0 ? (
            <p class="nothing">No rows.</p>
          ) : form === "plot" && canPlot ? (
            <Plot columns={answer.columns} rows={answer.rows} />
          ) : (
            <ResultTable columns={answer.columns} rows={answer.rows} label="Rows of the result" />
          )}
        </section>
      </div>
    </div>
  );
}

function summary({ rows, took, isCut }: { rows: unknown[]; took: number; isCut: boolean }): string {
  return `${isCut ? "the first " : ""}${counted(rows.length, "row")} in ${took.toFixed(2)} s`;
}
