import assert from "node:assert/strict";
import { test } from "node:test";
import { labelOf, withoutOverlaps } from "../src/chart/marks";

const mark = (time: number, text = "frequent", isAbove = false) => ({ time, text, color: "red", isAbove });

test("a label that would cover a newer one is left out, its mark is not", () => {
  const found = withoutOverlaps([mark(0), mark(1), mark(2), mark(9)], (time) => time * 10);
  assert.deepEqual(found.map(({ time, text }) => [time, text]), [[0, ""], [1, ""], [2, "frequent"], [9, "frequent"]]);
});

test("labels on both sides of a bar have room, and a mark is drawn once", () => {
  const found = withoutOverlaps([mark(0), mark(0), mark(0, "revised", true), mark(0, "", true)], () => 0);
  assert.deepEqual(found.map(({ text }) => text), ["frequent", "revised", ""]);
});

test("a long name is labelled with its ends, so that its mark at the newest bar is readable", () => {
  assert.equal(labelOf("dips"), "dips");
  assert.equal(labelOf("trigger-020f89ddc465edfa"), "trigger…edfa");
});
