import assert from "node:assert/strict";
import { test } from "node:test";
import { coveredDays } from "../src/data/coverage";
import { type Attempt, drawnBars, drawnPeriod, linesOf, stretchOf } from "../src/data/explain";
import { columnCompletion, completions } from "../src/data/language";
import { compact, counted, price, precisionOf, prices } from "../src/data/numbers";
import { onOneLine, parameterNames } from "../src/data/parameters";
import { problemsOf, startingOf } from "../src/data/platform";
import { openTime, periodName, periodSeconds, span, timesOf } from "../src/data/times";

test("parameters are found outside strings, comments and casts", () => {
  const sql = "close > :rise AND side = ':no' -- :nor\n AND x::int > ${size} AND a{:n} AND :rise < 1";
  assert.deepEqual(parameterNames(sql), ["rise", "size", "n"]);
});

test("a text on one line has no comments, which would hide the rest of it", () => {
  assert.equal(onOneLine("-- rise=1\nclose > open -- why\n  AND source = '--x'"), "close > open AND source = '--x'");
});

test("a day is covered once by overlapping requests, except for holes", () => {
  const row = (start: string, end: string, holes: { start: string; end: string }[] = [], status = "OK") => ({
    ...{ start: `2024-01-0${start}`, end: `2024-01-0${end}`, period_seconds: 60, holes, status },
  });
  const first = Date.UTC(2024, 0, 1) / 86_400_000;
  const hole = { start: "2024-01-02T00:00:00Z", end: "2024-01-02T06:00:00Z" };
  const days = coveredDays([row("1", "3", [hole]), row("1", "2"), row("3", "4", [], "ERROR")]);
  assert.deepEqual([...days], [[first, 1], [first + 1, 0.75]]);
});

test("a row's time is that of its event, not when it was stored", () => {
  const row = { open_time: "1970-01-01T00:02:00.000000000Z", at: "1970-01-01T00:01:00Z", updated_at: "2024-01-01T00:00:00Z" };
  assert.deepEqual(timesOf({ ...row, ticker: "A/B.C", close: 5 }), [60, 120]);
});

test("a small size is not shown as zero", () => {
  assert.deepEqual([0, 0.00012, 0.0345, 0.5, 12.345, 98765].map(compact), ["0", "0.00012", "0.035", "0.5", "12.35", "98.77K"]);
});

test("prices beside each other have the same number of digits, and one thing is not many", () => {
  assert.deepEqual(prices([1.5, 1.2534, 2]), ["1.5000", "1.2534", "2.0000"]);
  assert.deepEqual(prices([999.5, 1000.25]), ["999.50", "1,000.25"]);
  assert.deepEqual(prices([0.00001, 0.000012]), ["0.000010", "0.000012"]);
  assert.deepEqual(prices([NaN, 2]), ["–", "2.00"]);
  assert.deepEqual(prices([]), []);
  assert.deepEqual([0, 1, 2_000].map((each) => counted(each, "bar")), ["0 bars", "1 bar", "2,000 bars"]);
  assert.equal(counted(2, "match", "matches"), "2 matches");
});

test("periods, spans and prices are formatted for people", () => {
  assert.equal(periodSeconds("4h"), 14400);
  assert.equal(periodName(900), "15m");
  assert.equal(openTime(Date.UTC(2024, 0, 4) / 1000, 604800), Date.UTC(2024, 0, 1) / 1000);
  assert.equal(span(7200), "2 h");
  assert.equal(price(71234.5), "71,234.50");
  assert.equal(price(0.00001234), "0.00001234");
  assert.equal(precisionOf([0.00001234, 0.1]), 8);
});

test("functions are completed with their signatures, clauses with their forms", () => {
  const rsi = { name: "RSI", signature: "RSI(x, n)", text: "strength", nulls: "NULL at first", example: "RSI(price, 14)" };
  const group = { name: "GROUP BY", form: "GROUP BY columns", text: "groups" };
  const hammer = { name: "hammer", text: "the bars with this pattern" };
  const found = completions({ functions: [rsi], forms: [group], views: [hammer], keywords: ["GROUP", "GROUP BY"] });
  assert.deepEqual(
    found.map(({ label, detail }) => label + (detail ?? "")),
    ["RSI(x, n)", "GROUP BY columns", "hammer", "GROUP"],
  );
  assert.equal(found[0]?.info, "strength\nNULL at first\nRSI(price, 14)");
  assert.deepEqual(columnCompletion({ name: "price", type: "DOUBLE", text: "" }), {
    ...{ label: "price", type: "property", detail: "double" },
  });
});

const row = (time: string, variable: string) => ({ time: `1970-01-01T00:${time}Z`, variable, values: {} });
const attempt = (changes: Partial<Attempt>): Attempt => ({
  ...{ outcome: "failed", key: {}, start: null, rows: [], taken: 0, missing: 1, nearest: [], awaits: [], can_end: false },
  ...{ deadline: null, ...changes },
});

test("the rows of an attempt are drawn on their bars, and the row where it failed comes last", () => {
  const rows = [row("01:00", "A"), row("01:20", "B"), row("01:40", "B"), row("02:10", "B")];
  const nearest = ["B", "C"].map((variable) => ({ variable, row: row("03:30", variable), condition: null }));
  const died = attempt({ start: rows[0]!.time, rows, nearest });
  assert.deepEqual(drawnBars(died, 60), [
    { time: 60, text: "A B", variable: 0 },
    { time: 120, text: "B", variable: 1 },
    { time: 180, text: "not B, C", variable: -1 },
  ]);
  assert.deepEqual(stretchOf(died), { from: 60, to: 210 });
  assert.equal(drawnBars(attempt({ ...died, outcome: "waiting" }), 60).length, 2);
  assert.equal(stretchOf(attempt({})), undefined);
});

test("an explanation is drawn on the shortest bars that it reads", () => {
  assert.equal(drawnPeriod("trades and bars of 1h and bars of 5m"), "5m");
  assert.equal(drawnPeriod("events"), "1m");
});

test("each part of an AND is a line, and an OR stays whole", () => {
  const condition = (text: string, connective = "", parts: ReturnType<typeof linesOf> = []) => ({
    ...{ text, holds: false, operands: [], connective, parts },
  });
  const or = condition("c OR d", "OR", [condition("c"), condition("d")]);
  const both = condition("a AND b AND (c OR d)", "AND", [condition("a"), condition("b"), or]);
  assert.deepEqual(linesOf(both).map(({ text }) => text), ["a", "b", "c OR d"]);
});

test("a part that is not ready yet is starting, unless it stands by or says what is wrong", () => {
  const parts = {
    relay: { ready: true },
    driver: { ready: false, problems: [] },
    second: { ready: false, standby: true },
    broker: { ready: false, problems: ["no bus"] },
  };
  assert.deepEqual(startingOf({ parts }), ["driver"]);
  assert.deepEqual(problemsOf({ parts }), ["broker: no bus"]);
  assert.deepEqual(startingOf(undefined), []);
});
