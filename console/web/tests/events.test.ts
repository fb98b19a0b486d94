import assert from "node:assert/strict";
import { test } from "node:test";
import { type TriggerEvent, followEvents } from "../src/data/events";

const trigger = (trigger_id: string, events: number, tickers: string[] = []) => ({ trigger_id, events, tickers });
const event = (event_id: string, ticker: string) => ({ event_id, trigger_id: "a", ticker, time: "2024-01-01T00:00:00Z", rows: [{}] });

function platform(triggers: object[], events: object[]): void {
  const open = (signal?: AbortSignal | null): Response =>
    new Response(
      new ReadableStream({ start: (controller) => signal?.addEventListener("abort", () => controller.error(new Error("aborted"))) }),
    );
  Object.assign(globalThis, {
    fetch: async (address: string, { signal }: RequestInit) => {
      const { pathname } = new URL(address, "http://console");
      if (pathname.endsWith("/stream")) return open(signal);
      return Response.json(pathname.endsWith("/triggers") ? { triggers } : { events });
    },
  });
}

async function followed(ticker: string): Promise<string[][]> {
  const taken: string[][] = [];
  const end = followEvents(ticker, (events: TriggerEvent[]) => taken.push(events.map(({ id }) => id)));
  await new Promise((done) => setTimeout(done, 120));
  end();
  return taken;
}

test("a market without events is known only once all its triggers are read", async () => {
  platform([], []);
  assert.deepEqual(await followed("A/B.C"), [[]]);
  platform([trigger("a", 3), trigger("b", 0), trigger("other", 3, ["X/Y.Z"])], [event("1", "X/Y.Z")]);
  assert.deepEqual(await followed("A/B.C"), [[]]);
  platform([trigger("a", 3)], [event("1", "A/B.C"), event("2", "X/Y.Z")]);
  assert.deepEqual(await followed("A/B.C"), [["1"]]);
});
