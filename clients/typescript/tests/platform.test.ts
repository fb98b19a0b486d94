// Needs a running platform with a sandbox exchange at the address CANDLEWRIGHT_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, Problem } from "../src/index.ts";

const TICKER = "BTC/USDT.BINANCE";
const client = new Client(process.env["CANDLEWRIGHT_URL"]);
const HOUR = { ticker: TICKER, period: "1m", start: "2024-03-05T00:00:00Z", end: "2024-03-05T01:00:00Z" };

test("history is fetched, and read in every format", async () => {
  const rows = await client.history(HOUR);
  assert.equal(rows.length, 60);
  assert.equal(rows[0]?.open_time, "2024-03-05T00:00:00.000000000Z");
  const csv = await client.csv("list_bars", HOUR);
  assert.equal(csv.trimEnd().split("\n").length, 61);
  const arrow = await client.arrow("list_bars", HOUR);
  assert.ok(arrow.length > 60 * 8);
  const { rows: found, truncated } = await client.sql(`SELECT count(*) AS n FROM ohlc WHERE ticker = '${TICKER}'`);
  assert.ok(Number(found[0]?.["n"]) >= 60 && !truncated);
});

test("an error in a request is a Problem with its position", async () => {
  await assert.rejects(client.history({ ...HOUR, ticker: "BTC/USDT.NOWHERE" }), (error) => {
    return error instanceof Problem && error.status === 400 && error.message.includes("NOWHERE");
  });
  const wrong = client.call("check_trigger", { sql: "close >\n opn", tickers: [TICKER], parameters: { period_seconds: 60 } });
  await assert.rejects(wrong, (error) => error instanceof Problem && error.mistakes[0]?.line === 2);
});

test("a trigger is added, followed and removed", { timeout: 60_000 }, async () => {
  const trigger_id = "from/typescript";
  await client.addTrigger({ trigger_id, sql: "price > 0", tickers: [TICKER] });
  for await (const event of client.live([`TRIGGER:${trigger_id}`], { fromSequence: 1 })) {
    assert.ok(event.kind === "event" && event.data.sequence === 1 && Number(event.data.rows[0]?.["price"]) > 0);
    break;
  }
  await client.removeTrigger(trigger_id);
  await assert.rejects(client.call("get_trigger", { trigger_id }), (error) => error instanceof Problem && error.status === 404);
});

test("trades have neither gaps nor duplicates although the server is killed", { timeout: 60_000 }, async () => {
  const topic = `TICKS:${TICKER}`;
  const pid = async (): Promise<number> => ((await client.call("get_status")).parts["console"] as { pid: number }).pid;
  const killed = await pid();
  let next = 0;
  let left = Number.POSITIVE_INFINITY;
  let cursor = "";
  for await (const event of client.live([topic])) {
    if (event.kind !== "ticks") continue;
    for (const tick of event.data.ticks) {
      assert.ok(next === 0 || tick.sequence === next, `${tick.sequence} follows ${next - 1}`);
      next = tick.sequence + 1;
      left -= 1;
    }
    if (left === Number.POSITIVE_INFINITY) {
      process.kill(killed, "SIGKILL");
      left = 30;
    }
    cursor = event.id;
    if (left <= 0) break;
  }
  assert.notEqual(await pid(), killed);
  for await (const event of client.live([topic], { cursor })) {
    assert.ok(event.kind === "ticks" && event.data.sequence === next);
    break;
  }
});
