import assert from "node:assert/strict";
import { test } from "node:test";
import { follow } from "../src/data/live";

test("topics beyond those of one stream are refused with a reason, and followed once there is room", async () => {
  let topics: string[] = [];
  const stream = (address: string, { signal }: RequestInit): Response => {
    topics = new URL(address, "http://console").searchParams.getAll("topic");
    return new Response(
      new ReadableStream({ start: (controller) => signal?.addEventListener("abort", () => controller.error(new Error("aborted"))) }),
    );
  };
  Object.assign(globalThis, { fetch: async (address: string, init: RequestInit) => stream(address, init) });
  const settled = (): Promise<void> => new Promise((done) => setTimeout(done, 80));
  const refused: string[] = [];
  const ends = Array.from({ length: 101 }, (_, at) =>
    follow(`TRIGGER:${at}`, () => undefined, undefined, (reason) => refused.push(`${at}: ${reason}`)),
  );
  await settled();
  assert.equal(topics.length, 100);
  assert.deepEqual(refused, ["100: a page follows at most 100 topics"]);
  ends[0]!();
  await settled();
  assert.ok(topics.includes("TRIGGER:100") && !topics.includes("TRIGGER:0"));
  assert.equal(refused.length, 1);
  for (const end of ends) end();
});
