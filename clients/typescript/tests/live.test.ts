import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { Client, type Connection, Problem, Unreachable } from "../src/index.ts";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

async function serving(context: TestContext, handler: Handler): Promise<Client> {
  const server: Server = createServer(handler);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  context.after(() => (server.closeAllConnections(), server.close()));
  return new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

function tell(response: ServerResponse, status: number, detail: string): void {
  const headers = { "Content-Type": "application/problem+json", "Retry-After": "0.01" };
  response.writeHead(status, headers).end(JSON.stringify({ type: "urn:candlewright:problem:some", status, detail }));
}

function gap(first: number): string {
  return `event: gap\nid: c${first}\ndata: ${JSON.stringify({ topic: "T", first, last: first, reason: "" })}\n\n`;
}

test("a stream that breaks at any byte continues after the last complete event", async (context) => {
  const cursors: (string | undefined)[] = [];
  const client = await serving(context, (request, response) => {
    const cursor = request.headers["last-event-id"] as string | undefined;
    cursors.push(cursor);
    if (cursors.length % 5 === 0) return tell(response, 503, "it starts");
    const next = cursor === undefined ? 1 : Number(cursor.slice(1)) + 1;
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(`id: c${next - 1}\n\n${gap(next)}`);
    // Each connection breaks at a different byte of the second event.
    response.write(gap(next + 1).slice(0, cursors.length * 5), () => setTimeout(() => response.destroy(), 5));
  });
  const states: Connection[] = [];
  const seen: number[] = [];
  for await (const { kind, data } of client.live(["T"], { onConnection: (state) => states.push(state) })) {
    assert.equal(kind, "gap");
    seen.push((data as { first: number }).first);
    if (seen.length === 12) break;
  }
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
  assert.equal(cursors[0], undefined);
  // Alternately, although some attempts to reconnect are refused.
  assert.deepEqual(states, states.map((_, place) => (place % 2 === 0 ? "live" : "lost")));
  assert.ok(states.length >= 3);
});

test("a refusal ends a stream, and so does the consumer's signal", async (context) => {
  let calls = 0;
  const client = await serving(context, (_, response) => {
    calls += 1;
    if (calls === 2) return tell(response, 400, "the cursor belongs to a stream over other topics");
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(gap(1));
    if (calls === 1) setTimeout(() => response.destroy(), 5);
  });
  const refused = Array.fromAsync(client.live(["T"]));
  await assert.rejects(refused, (error) => error instanceof Problem && error.status === 400 && error.code === "some");
  const abort = new AbortController();
  for await (const event of client.live(["T"], { signal: abort.signal })) if (event.kind === "gap") abort.abort();
  assert.equal(calls, 3);
});

test("without a platform the first connection fails, and so do calls", async () => {
  const client = new Client("http://127.0.0.1:9");
  await assert.rejects(client.live(["T"]).next(), Unreachable);
  await assert.rejects(client.call("get_status"), /http:\/\/127\.0\.0\.1:9 cannot be reached/);
});

test("arguments go into the path, the query or the body", async (context) => {
  const asked: string[] = [];
  const client = await serving(context, async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    asked.push(`${request.method} ${request.url} ${body}`);
    response.end("{}");
  });
  await client.call("get_history", { request_id: "a/b" });
  await client.call("list_markets", { search: "btc usdt", venue: null });
  await client.csv("query_sql", { sql: "SELECT 1", limit: 2 });
  assert.deepEqual(asked, [
    "GET /api/v1/history/a%2Fb ",
    "GET /api/v1/markets?search=btc+usdt ",
    'POST /api/v1/sql?format=csv {"sql":"SELECT 1","limit":2}',
  ]);
});
