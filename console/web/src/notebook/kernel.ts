/**
 * The notebook's kernel as the source of a chart: it reads and follows topics for the widget, so the page itself sends no
 * requests.
 */
import type { Source } from "../data/bars";
import type { Message } from "../data/live";

/** The part of anywidget's model that a widget's front end uses. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: "msg:custom", take: (content: Content, buffers: DataView[]) => void): void;
  off(event: "msg:custom", take: (content: Content, buffers: DataView[]) => void): void;
}

interface Content {
  /** The view that sent the request; messages of topics go to all views. */
  view?: string;
  answer?: number;
  error?: string;
  topic?: string;
  kind?: "messages" | "resumed" | "failed";
  reason?: string;
}

interface Follower {
  topic: string;
  message: (message: Message) => void;
  resumed?: () => void;
  failed?: (reason: string) => void;
}

export class Kernel implements Source {
  readonly #view = Math.random().toString(36).slice(2);
  readonly #asked = new Map<number, { done: (value: unknown) => void; fail: (error: Error) => void }>();
  readonly #followers = new Set<Follower>();
  #count = 0;

  /** What the first request asks for, from when the chart was displayed: a busy kernel answers none. */
  #first: DataView | undefined;

  constructor(private readonly model: Model) {
    const first = model.get("first");
    if (first instanceof DataView && first.byteLength > 0) this.#first = first;
    model.on("msg:custom", this.#take);
    model.send({ view: this.#view, what: "open" });
  }

  /** The kernel stops following the topics when its last view is closed. */
  close(): void {
    this.model.send({ view: this.#view, what: "close" });
    this.model.off("msg:custom", this.#take);
    for (const { fail } of this.#asked.values()) fail(new Error("closed"));
  }

  readonly get = <T>(path: string, query: Record<string, unknown> = {}): Promise<T> => {
    const first = this.#first;
    this.#first = undefined;
    const isNewest = path === "bars" && query.order === "last" && query.end === undefined;
    if (first && isNewest && query.limit === this.model.get("first_bars")) {
      return Promise.resolve(JSON.parse(new TextDecoder().decode(first)) as T);
    }
    const id = (this.#count += 1);
    this.model.send({ view: this.#view, what: "get", id, path, query });
    return new Promise<T>((done, fail) => this.#asked.set(id, { done: done as (value: unknown) => void, fail }));
  };

  readonly follow: Source["follow"] = (topic, message, resumed, failed) => {
    const follower = { topic, message, resumed, failed };
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  };

  readonly #take = (content: Content, buffers: DataView[]): void => {
    const text = buffers[0] === undefined ? "null" : new TextDecoder().decode(buffers[0]);
    if (content.answer !== undefined) {
      if (content.view !== this.#view) return;
      const asked = this.#asked.get(content.answer);
      this.#asked.delete(content.answer);
      if (content.error === undefined) asked?.done(JSON.parse(text));
      else asked?.fail(new Error(content.error));
      return;
    }
    for (const each of [...this.#followers].filter(({ topic }) => topic === content.topic)) {
      if (content.kind === "messages") for (const message of JSON.parse(text) as Message[]) each.message(message);
      else if (content.kind === "resumed") each.resumed?.();
      else each.failed?.(content.reason ?? "");
    }
  };
}
