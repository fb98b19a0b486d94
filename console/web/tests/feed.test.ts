import assert from "node:assert/strict";
import { test } from "node:test";
import { ChartFeed } from "../src/chart/feed";
import { connection } from "../src/data/live";
import { iso } from "../src/data/times";

/** Replaces fetch by a platform with stored bars and a stream. */
class Platform {
  stored: number[] = [];
  #streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  topics: string[] = [];

  constructor() {
    Object.assign(globalThis, {
      sessionStorage: { getItem: () => null },
      requestAnimationFrame: (run: () => void) => setTimeout(run, 0),
      cancelAnimationFrame: () => undefined,
      fetch: (address: string, { signal }: RequestInit) => this.#answer(new URL(address, "http://console"), signal),
    });
  }

  send(kind: string, data: object): void {
    const text = `event: ${kind}\nid: c\ndata: ${JSON.stringify(data)}\n\n`;
    this.#streams.at(-1)!.enqueue(new TextEncoder().encode(text));
  }

  cut(): void {
    this.#streams.at(-1)!.error(new Error("cut"));
  }

  bar(time: number, sequence = time) {
    return { topic: "OHLC:A/B.C:60", sequence, open_time: iso(time), open: 1, high: 2, low: 1, close: 2, volume: 3 };
  }

  async #answer(address: URL, signal?: AbortSignal | null): Promise<Response> {
    if (address.pathname.endsWith("/stream")) {
      this.topics = address.searchParams.getAll("topic");
      const body = new ReadableStream<Uint8Array>({
        start: (controller) => {
          this.#streams.push(controller);
          signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
        },
      });
      return new Response(body);
    }
    const time = (name: string, otherwise: number): number =>
      address.searchParams.has(name) ? Date.parse(address.searchParams.get(name)!) / 1000 : otherwise;
    const times = this.stored.filter((each) => time("start", 0) <= each && each < time("end", Infinity));
    const limit = Number(address.searchParams.get("limit"));
    const chosen = address.searchParams.get("order") === "last" ? times.slice(-limit) : times.slice(0, limit);
    return Response.json({ rows: chosen.map((each) => this.bar(each)) });
  }
}

async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries += 1) {
    assert.ok(tries < 300);
    await new Promise((done) => setTimeout(done, 10));
  }
}

test("neither the start nor a lost connection leaves a gap", async () => {
  const platform = new Platform();
  platform.stored = [60, 120, 180];
  const feed = new ChartFeed("A/B.C", 60, { reset: () => undefined, older: () => undefined, newest: () => undefined });
  const times = (): string => feed.candles.bars.map((each) => each.time).join(" ");
  await feed.start();
  await until(() => connection.get() === "live");
  assert.deepEqual(platform.topics, ["OHLC:A/B.C:60", "TICKS:A/B.C"]);
  assert.equal(times(), "60 120 180");

  platform.stored.push(240, 300);
  platform.send("bar", platform.bar(360));
  await until(() => times() === "60 120 180 240 300 360");

  platform.cut();
  await until(() => connection.get() === "lost");
  platform.stored.push(360, 420, 480);
  await until(() => connection.get() === "live");
  await until(() => times() === "60 120 180 240 300 360 420 480");
  platform.send("bar", platform.bar(420, 1));
  platform.send("error", { topic: "OHLC:A/B.C:60", reason: "no such market" });
  await until(() => feed.state.get().notLive === "no such market");
  assert.deepEqual(feed.candles.holes(), []);
  feed.close();
});

test("history is read back to its beginning, page by page", async () => {
  const platform = new Platform();
  platform.stored = Array.from({ length: 13_000 }, (_, at) => at * 60);
  const feed = new ChartFeed("A/B.C", 60, { reset: () => undefined, older: () => undefined, newest: () => undefined });
  await feed.start();
  assert.equal(feed.candles.bars.length, 600);
  await feed.reach(0);
  assert.equal(feed.candles.bars.length, 13_000);
  assert.equal(feed.state.get().isAtBeginning, true);
  assert.deepEqual(feed.candles.holes(), []);
  feed.close();
});
