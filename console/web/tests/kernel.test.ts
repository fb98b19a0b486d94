import assert from "node:assert/strict";
import { test } from "node:test";
import { ChartFeed } from "../src/chart/feed";
import { Kernel } from "../src/notebook/kernel";

const ROWS = [60, 120].map((time) => ({ open_time: new Date(time * 1000).toISOString(), open: 1, high: 2, low: 1, close: 2, volume: 3 }));
const encoded = (content: object): DataView => new DataView(new TextEncoder().encode(JSON.stringify(content)).buffer);

/** A kernel that is busy: it takes messages and answers none. */
function busy(first: DataView | undefined) {
  const sent: Record<string, unknown>[] = [];
  const values: Record<string, unknown> = { first, first_bars: 600 };
  const model = {
    get: (name: string) => values[name],
    send: (content: object) => void sent.push(content as Record<string, unknown>),
    on: () => undefined,
    off: () => undefined,
  };
  return { kernel: new Kernel(model), sent };
}

test("a chart shows the bars that it was displayed with while the kernel is busy", async () => {
  const { kernel, sent } = busy(encoded({ rows: ROWS }));
  const drawn: number[][] = [];
  const feed = new ChartFeed("A/B.C", 60, { reset: (bars) => drawn.push(bars.map((bar) => bar.time)), older: () => undefined, newest: () => undefined }, kernel);
  await feed.start();
  assert.deepEqual(drawn, [[60, 120]]);
  assert.deepEqual(sent.map(({ what }) => what), ["open"]);
  void kernel.get("bars", { order: "last", limit: 600 }).catch(() => undefined);
  assert.equal(sent.at(-1)?.what, "get");
  feed.close();
  kernel.close();
});

test("a chart without such bars asks the kernel", () => {
  const { kernel, sent } = busy(new DataView(new ArrayBuffer(0)));
  void kernel.get("bars", { order: "last", limit: 600 }).catch(() => undefined);
  assert.equal(sent.at(-1)?.what, "get");
  kernel.close();
});
