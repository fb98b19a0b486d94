/**
 * Live topics over one stream of server-sent events for the whole page.
 *
 * It is read with fetch, not EventSource, so that a refusal has a reason and a silent connection is noticed. A lost
 * connection is resumed from its cursor, which belongs to one set of topics; after each new connection followers are
 * notified, and read what they may have missed from the tables.
 */
import { EventParser } from "candlewright/events";
import { address, problemOf } from "./api";
import { Value } from "./value";

export interface Message {
  topic: string;
  sequence?: number;
  [name: string]: unknown;
}

export type Connection = "idle" | "connecting" | "live" | "lost";

interface Follower {
  topic: string;
  message: (message: Message) => void;
  /** Something may have been missed: there is a new connection, or the platform no longer keeps some numbers. */
  resumed?: () => void;
  /** Why there will be no messages, or that a trigger was stopped. */
  failed?: (reason: string) => void;
}

/** The server sends at least a comment every 15 s. */
const SILENCE_MS = 40_000;
/** The most topics of one stream. */
const MOST_TOPICS = 100;
const PAUSES_MS = [250, 500, 1000, 2000, 4000, 8000];

export const connection = new Value<Connection>("idle");
/** Why the platform refuses the topics; empty otherwise. */
export const refusal = new Value("");

const followers = new Set<Follower>();
const lastSequence = new Map<string, number>();
let cursor = "";
let open: { topics: string; abort: AbortController } | undefined;
let planned = false;

/** Returns a function that stops following. */
export function follow(
  topic: string,
  message: (message: Message) => void,
  resumed?: () => void,
  failed?: (reason: string) => void,
): () => void {
  const follower: Follower = { topic, message, resumed, failed };
  followers.add(follower);
  plan();
  return () => {
    followers.delete(follower);
    plan();
  };
}

/** Changes made at the same time open only one stream. */
function plan(): void {
  if (planned) return;
  planned = true;
  setTimeout(() => {
    planned = false;
    const all = [...new Set([...followers].map((each) => each.topic))];
    const topics = all.slice(0, MOST_TOPICS).sort();
    const surplus = new Set(all.slice(MOST_TOPICS));
    for (const each of [...followers]) {
      if (surplus.has(each.topic)) each.failed?.(`a page follows at most ${MOST_TOPICS} topics`);
    }
    const key = topics.join("\n");
    if (key === (open?.topics ?? "")) return;
    open?.abort.abort();
    open = undefined;
    cursor = "";
    for (const topic of [...lastSequence.keys()]) if (!topics.includes(topic)) lastSequence.delete(topic);
    if (topics.length === 0) {
      connection.set("idle");
      return;
    }
    open = { topics: key, abort: new AbortController() };
    void keepOpen(topics, open.abort.signal);
  }, 30);
}

async function keepOpen(topics: string[], signal: AbortSignal): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    if (connection.get() !== "lost") connection.set("connecting");
    const attempt = new AbortController();
    const stop = (): void => attempt.abort();
    signal.addEventListener("abort", stop);
    try {
      await readOnce(topics, attempt, () => (failures = 0));
    } catch {
      // The reason does not matter: the next connection continues from the cursor.
    } finally {
      signal.removeEventListener("abort", stop);
    }
    if (signal.aborted) return;
    connection.set("lost");
    const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]!;
    failures += 1;
    await wait(pause * (0.75 + Math.random() / 2), signal);
  }
}

async function readOnce(topics: string[], attempt: AbortController, opened: () => void): Promise<void> {
  let silence = setTimeout(() => attempt.abort(), SILENCE_MS);
  try {
    const response = await fetch(address("stream", { topic: topics }), {
      headers: { Accept: "text/event-stream", ...(cursor && { "Last-Event-ID": cursor }) },
      cache: "no-store",
      signal: attempt.signal,
    });
    if (!response.ok || response.body === null) {
      const problem = await problemOf(response);
      if (response.status >= 400 && response.status < 500) {
        // A cursor from before a restart may be useless; followers then read the tables instead.
        cursor = "";
        refusal.set(problem.message);
      }
      throw problem;
    }
    opened();
    refusal.set("");
    connection.set("live");
    for (const each of [...followers]) each.resumed?.();
    const parser = new EventParser(dispatch, cursor);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done) return;
      silence = setTimeout(() => attempt.abort(), SILENCE_MS);
      parser.take(value);
      if (!attempt.signal.aborted) cursor = parser.id;
    }
  } finally {
    clearTimeout(silence);
  }
}

const CONTENT = new Set(["ticks", "bar", "snapshot", "event", "final"]);

function dispatch(kind: string, data: string): void {
  const message = JSON.parse(data) as Message;
  const { topic, sequence } = message;
  const own = [...followers].filter((each) => each.topic === topic);
  if (kind === "gap") {
    for (const each of own) each.resumed?.();
  } else if (kind === "error" || kind === "suspended") {
    for (const each of own) each.failed?.(String(message.reason));
  } else if (CONTENT.has(kind)) {
    if (sequence !== undefined && sequence <= (lastSequence.get(topic) ?? -1)) return;
    if (sequence !== undefined) lastSequence.set(topic, sequence);
    for (const each of own) each.message(message);
  }
}

function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
