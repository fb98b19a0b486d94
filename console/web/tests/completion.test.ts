import assert from "node:assert/strict";
import { test } from "node:test";
import { CompletionContext, type CompletionSource } from "@codemirror/autocomplete";
import { EditorState } from "@codemirror/state";
import type { Language } from "../src/data/language";
import { languageSupport } from "../src/parts/completion";

const entry = (name: string) => ({ name, signature: `${name}(x, n)`, text: "", nulls: "", example: "" });
const column = (name: string) => ({ name, type: "DOUBLE", text: "" });
const LANGUAGE: Language = {
  keywords: ["FROM", "SELECT"],
  types: ["DOUBLE"],
  forms: [{ name: "GROUP BY", form: "GROUP BY columns", text: "" }],
  functions: [entry("RSI")],
  views: [{ name: "hammer", text: "" }],
  tables: { ticks: ["ticker", "price"].map(column), ohlc: ["ticker", "close"].map(column) },
};

/** What an editor offers at the `|` of a text for the word there. */
async function offered(text: string): Promise<string[]> {
  const [before = "", after = ""] = text.split("|");
  const state = EditorState.create({ doc: before + after, extensions: languageSupport(LANGUAGE) });
  const context = new CompletionContext(state, before.length, false);
  const sources = state.languageDataAt<CompletionSource>("autocomplete", before.length);
  const found = await Promise.all(sources.map((each) => each(context)));
  const labels = found.filter((each) => each !== null).flatMap(({ from, options }) => {
    const word = before.slice(from).toLowerCase();
    return options.map(({ label }) => label).filter((label) => label.toLowerCase().startsWith(word));
  });
  return labels.sort();
}

test("functions and clauses are offered anywhere in a line", async () => {
  assert.deepEqual(await offered("r|"), ["RSI"]);
  assert.deepEqual(await offered("SELECT rs|"), ["RSI"]);
  assert.deepEqual(await offered("SELECT price FROM ticks gr|"), ["GROUP BY"]);
  assert.deepEqual(await offered("SELECT * FROM ham|"), ["hammer"]);
});

test("columns are those of the tables that the text names, or of all", async () => {
  assert.deepEqual(await offered("cl|"), ["close"]);
  assert.deepEqual(await offered("price > 1 AND pr|"), ["price"]);
  assert.deepEqual(await offered("SELECT cl| FROM ticks"), []);
  assert.deepEqual(await offered("SELECT ti| FROM ticks, ohlc"), ["ticker", "ticks"]);
  assert.deepEqual(await offered("SELECT t.| FROM ticks t"), ["price", "ticker"]);
  assert.deepEqual(await offered("SELECT t.pr| FROM ticks t"), ["price"]);
  assert.deepEqual(await offered("SELECT t.rs| FROM ticks t"), []);
});

test("nothing is offered in texts, comments and parameters", async () => {
  for (const text of ["side = 'rs|'", "-- rs|", "/* rs| */", 'SELECT "rs|', "price > :rs|", "price > ${rs|}"]) {
    assert.deepEqual(await offered(text), [], text);
  }
});
