import type { LiveEvents } from "./api.ts";
import { EventParser } from "./events.ts";
import { Problem, Unreachable } from "./problem.ts";

type Kind = Exclude<keyof LiveEvents, "closed">;

/** `kind` determines the type of `data`; `id` is the cursor after this event. */
export type LiveEvent = { [Each in Kind]: { kind: Each; id: string; data: LiveEvents[Each] } }[Kind];

export type Connection = "live" | "lost";

export interface LiveOptions {
  /** Continue after the event with this `id`, which must come from a stream over the same topics. */
  cursor?: string;
  /** Begin with this number; only for a single topic. */
  fromSequence?: number;
  /** Ends the stream. */
  signal?: AbortSignal;
  /** Called with `live` and `lost` alternately, however many attempts a new connection takes. */
  onConnection?: (state: Connection) => void;
}

/** The server sends at least a comment every 15 s. */
const SILENCE_MS = 40_000;
const PAUSES_MS = [100, 250, 500, 1_000, 2_000, 4_000, 8_000];
/** A connection that lasted this long counts as a success. */
const GOOD_MS = 10_000;

/** Connects with the given headers and signal; `query` says where to begin. */
type Open = (query: Record<string, unknown>, headers: Record<string, string>, signal: AbortSignal) => Promise<Response>;

/**
 * Events in order, each once. A new connection continues after the last event that was consumed, so the consumer sees
 * neither gaps nor duplicates. Nothing is read ahead of the consumer except what the sockets buffer.
 *
 * Throws the error that prevents the first connection; later, only a refusal.
 */
export async function* follow(open: Open, topics: readonly string[], options: LiveOptions): AsyncGenerator<LiveEvent, void> {
  const { signal, onConnection } = options;
  let cursor = options.cursor ?? "";
  let wasLive = false;
  let isLive = false;
  for (let failures = 0; !signal?.aborted; failures += 1) {
    const opened = Date.now();
    let wait = 0;
    const attempt = new AbortController();
    const stop = (): void => attempt.abort();
    signal?.addEventListener("abort", stop);
    try {
      const query = { topic: topics, from_sequence: cursor ? undefined : options.fromSequence };
      const response = await open(query, cursor ? { "Last-Event-ID": cursor } : {}, attempt.signal);
      for await (const event of events(response, cursor, stop)) {
        cursor = event.id;
        if (!isLive) onConnection?.("live");
        isLive = wasLive = true;
        if (event.data === undefined) continue;
        failures = 0;
        yield event as LiveEvent;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (!wasLive || !isPassing(error)) throw error;
      if (error instanceof Problem) wait = (error.retryAfterSeconds ?? 0) * 1_000;
    } finally {
      attempt.abort();
      signal?.removeEventListener("abort", stop);
    }
    if (signal?.aborted) return;
    if (isLive) onConnection?.("lost");
    isLive = false;
    if (Date.now() - opened > GOOD_MS) failures = 0;
    const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]!;
    await sleep(Math.max(wait, pause * (0.75 + Math.random() / 2)), signal);
  }
}

/** The events of one connection. The first has no data, only the id of the current position. */
async function* events(response: Response, cursor: string, stop: () => void): AsyncGenerator<Partial<LiveEvent> & { id: string }> {
  const found: (Partial<LiveEvent> & { id: string })[] = [];
  const parser = new EventParser((kind, data) => {
    if (kind !== "closed") found.push({ kind, id: parser.id, data: JSON.parse(data) } as LiveEvent);
  }, cursor);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const silence = setTimeout(stop, SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    parser.take(value);
    yield* found.splice(0);
    yield { id: parser.id };
  }
}

/** Whether the same call may succeed later. */
function isPassing(error: unknown): boolean {
  if (error instanceof Problem) return error.status === 429 || error.status >= 500;
  return error instanceof Unreachable || error instanceof TypeError || (error as Error)?.name === "AbortError";
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
    function end(): void {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      done();
    }
  });
}
