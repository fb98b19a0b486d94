import assert from "node:assert/strict";
import { test } from "node:test";
import type { Bar } from "../src/chart/candles";
import { Stretch } from "../src/chart/stretch";

const bar = (number: number, more: Partial<Bar> = {}): Bar => ({
  ...{ time: number * 60, open: number, high: number + 1, low: number - 1, close: number + 0.5, volume: 1 },
  ...{ source: "", revision: 0, isForming: false },
  ...more,
});
const many = Array.from({ length: 100_000 }, (_, number) => bar(number));
const at = (number: number): number => number * 60;

test("a close view has single bars, and some screens around it", () => {
  const made = Stretch.around(many, 60, at(50_000), at(50_200));
  assert.equal(made.level, 1);
  assert.deepEqual([made.first, made.last, made.places.length], [at(49_000), at(51_199), 2_200]);
  assert.ok(made.fits(many, at(49_200), at(49_400)));
  assert.ok(!made.fits(many, at(49_050), at(49_250)));
  assert.ok(!made.fits(many, at(51_000), at(51_200)));
  assert.ok(!made.hasLast);
});

test("a distant view has groups of bars, without losing any", () => {
  const made = Stretch.around(many, 60, 0, Infinity);
  assert.ok(made.places.length <= 2_500 && made.hasLast && made.fits(many, 0, at(100_000)));
  assert.ok(Math.abs(made.places.reduce((sum, place) => sum + place.bar!.volume, 0) - many.length) < 1e-6);
  const [first, second] = made.places.map((place) => place.bar!);
  assert.deepEqual(
    [first!.open, first!.high, first!.low, first!.close],
    [0, made.level, -1, made.level - 0.5],
  );
  assert.equal(second!.time, at(made.level));
});

test("positions and times are inverse to each other, even outside the bars and across gaps", () => {
  const bars = [...many.slice(0, 10), ...many.slice(12, 20), ...many.slice(5_000, 5_010)];
  const made = Stretch.around(bars, 60, 0, Infinity);
  assert.equal(made.places.length, 10 + 2 + 8 + 1 + 10);
  assert.equal(made.places.filter((place) => place.bar === undefined).length, 3);
  for (let position = -5; position < 40; position += 0.25)
    assert.ok(Math.abs(made.positionOf(made.timeAt(position)) - position) < 1e-6, String(position));
  assert.equal(made.placeAt(at(11))?.bar, undefined);
  assert.equal(made.placeAt(at(12) + 30)?.bar?.open, 12);
});

test("the newest bar replaces its place or takes the next, and a later one does not follow", () => {
  for (const count of [1_000, 100_000]) {
    const bars = many.slice(0, count);
    const made = Stretch.around(bars, 60, 0, Infinity);
    const before = made.places.length;
    const forming = bar(count, { isForming: true, high: 1e6 });
    for (const each of [forming, { ...forming, close: 7 }, bar(count)]) assert.ok(made.extend(each) !== undefined);
    const whole = Stretch.around([...bars, bar(count)], 60, 0, Infinity);
    assert.ok(made.places.length - before <= 1);
    assert.deepEqual(made.places.at(-1), whole.level === made.level ? whole.places.at(-1) : made.places.at(-1));
    assert.equal(made.extend(bar(count + 2)), undefined);
    assert.equal(made.extend(bar(count - 1)), undefined);
  }
});
