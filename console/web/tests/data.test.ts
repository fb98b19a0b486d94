import assert from "node:assert/strict";
import { test } from "node:test";
import { coveredDays } from "../src/data/coverage";
import { columnCompletion, completions } from "../src/data/language";
import { price, precisionOf } from "../src/data/numbers";
import { parameterNames } from "../src/data/parameters";
import { openTime, periodName, periodSeconds, span, timesOf } from "../src/data/times";

test("parameters are found outside of texts, comments and casts", () => {
  const sql = "close > :rise AND side = ':no' -- :nor\n AND x::int > ${size} AND a{:n} AND :rise < 1";
  assert.deepEqual(parameterNames(sql), ["rise", "size", "n"]);
});

test("a day is covered once by overlapping requests, and not where it has holes", () => {
  const row = (start: string, end: string, holes: { start: string; end: string }[] = [], status = "OK") => ({
    ...{ start: `2024-01-0${start}`, end: `2024-01-0${end}`, period_seconds: 60, holes, status },
  });
  const first = Date.UTC(2024, 0, 1) / 86_400_000;
  const hole = { start: "2024-01-02T00:00:00Z", end: "2024-01-02T06:00:00Z" };
  const days = coveredDays([row("1", "3", [hole]), row("1", "2"), row("3", "4", [], "ERROR")]);
  assert.deepEqual([...days], [[first, 1], [first + 1, 0.75]]);
});

test("a row happened at its own times, not when it was stored", () => {
  const row = { open_time: "1970-01-01T00:02:00.000000000Z", at: "1970-01-01T00:01:00Z", updated_at: "2024-01-01T00:00:00Z" };
  assert.deepEqual(timesOf({ ...row, ticker: "A/B.C", close: 5 }), [60, 120]);
});

test("periods, spans and prices are shown as people write them", () => {
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
  const found = completions({ functions: [rsi], forms: [group], keywords: ["GROUP", "GROUP BY"] });
  assert.deepEqual(
    found.map(({ label, detail }) => label + (detail ?? "")),
    ["RSI(x, n)", "GROUP BY columns", "GROUP"],
  );
  assert.equal(found[0]?.info, "strength\nNULL at first\nRSI(price, 14)");
  assert.deepEqual(columnCompletion({ name: "price", type: "DOUBLE", text: "" }), {
    ...{ label: "price", type: "property", detail: "double" },
  });
});
