import assert from "node:assert/strict";
import { test } from "node:test";
import { type Bar, Candles, Forming, combine, type Trade } from "../src/chart/candles";

const bar = (time: number, close = 1, more: Partial<Bar> = {}): Bar => ({
  ...{ time, open: close, high: close, low: close, close, volume: 1, source: "ticks", revision: 0, isForming: false },
  ...more,
});
const trade = (time: number, price: number, id = "1"): Trade => ({ time, price, size: 2, side: "buy", id });
const times = (candles: Candles): number[] => candles.bars.map((each) => each.time);

test("older, newer and missing bars are placed in order", () => {
  const candles = new Candles(60);
  candles.merge([bar(600), bar(660)]);
  candles.merge([bar(840)]);
  candles.merge([bar(480), bar(540)]);
  assert.deepEqual(candles.holes(), [{ from: 720, to: 840 }]);
  candles.merge([bar(720), bar(780)]);
  assert.deepEqual(times(candles), [480, 540, 600, 660, 720, 780, 840]);
  assert.deepEqual(candles.holes(), []);
});

test("a revision replaces its bar, and an older copy does not replace the revision", () => {
  const candles = new Candles(60);
  candles.merge([bar(0, 1), bar(60, 1)]);
  assert.equal(candles.merge([bar(0, 2, { revision: 1 })]), true);
  assert.equal(candles.merge([bar(0, 1)]), false);
  assert.equal(candles.at(0)?.close, 2);
  assert.equal(candles.at(30), undefined);
});

test("the bar in progress counts each trade once, and none of a closed bar", () => {
  const forming = new Forming(60);
  forming.take(trade(59, 9), 60);
  assert.equal(forming.bar, undefined);
  forming.take(trade(61, 5), 60);
  forming.take(trade(62, 7), 60);
  forming.precede(bar(60, 4, { volume: 3 }));
  assert.deepEqual(
    [forming.bar?.open, forming.bar?.high, forming.bar?.low, forming.bar?.close, forming.bar?.volume],
    [4, 7, 4, 7, 7],
  );
  forming.take(trade(121, 8), 60);
  assert.equal(forming.bar?.time, 120);
  forming.closed(120);
  assert.equal(forming.bar, undefined);
});

test("closed minutes form the beginning of an hour, and weeks begin on Monday", () => {
  const hour = combine([bar(3600, 5), bar(3660, 9), bar(3720, 6)], 3600);
  assert.deepEqual([hour?.time, hour?.open, hour?.high, hour?.close, hour?.volume], [3600, 5, 9, 6, 3]);
  const week = combine([bar(Date.UTC(2024, 0, 3) / 1000)], 604800);
  assert.equal(week?.time, Date.UTC(2024, 0, 1) / 1000);
});
