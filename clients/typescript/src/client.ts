import { type BarRow, CALLS, type Calls, type NewRequest, type NewTrigger, type SqlRows, type Tabular } from "./api.ts";
import { follow, type LiveEvent, type LiveOptions } from "./live.ts";
import { Problem, Unreachable } from "./problem.ts";

export interface ClientOptions {
  /** A token from `candlewright keys new NAME --role viewer|operator`; not needed on loopback. */
  token?: string;
  /** The time limit of one call; 0: none. */
  timeoutMs?: number;
}

export interface Options {
  signal?: AbortSignal;
}

type Given<Name extends keyof Calls> = Calls[Name]["given"];
type Rest<Name extends keyof Calls> = {} extends Given<Name>
  ? [given?: Given<Name>, options?: Options]
  : [given: Given<Name>, options?: Options];

const TIMEOUT_MS = 120_000;

/** A client of a platform's HTTP API. Every method throws `Problem` or `Unreachable`. */
export class Client {
  readonly url: string;
  #headers: Record<string, string>;
  #timeoutMs: number;

  constructor(url = "http://127.0.0.1:8090", options: ClientOptions = {}) {
    this.url = url.replace(/\/+$/, "");
    this.#headers = options.token ? { Authorization: `Bearer ${options.token}` } : {};
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  }

  /** Any call of the API by its name. */
  async call<Name extends keyof Calls>(name: Name, ...[given, options]: Rest<Name>): Promise<Calls[Name]["answer"]> {
    const response = await this.#send(name, given ?? {}, {}, options);
    return (response.status === 204 ? undefined : await this.#read(response.json())) as Calls[Name]["answer"];
  }

  /** Rows as CSV, with a header line. */
  async csv<Name extends Tabular>(name: Name, given: Given<Name>, options?: Options): Promise<string> {
    return this.#read((await this.#send(name, given, { format: "csv" }, options)).text());
  }

  /** Rows as an Arrow IPC stream, which `tableFromIPC` of `apache-arrow` reads. */
  async arrow<Name extends Tabular>(name: Name, given: Given<Name>, options?: Options): Promise<Uint8Array> {
    return new Uint8Array(await this.#read((await this.#send(name, given, { format: "arrow" }, options)).arrayBuffer()));
  }

  /** Fetches candles into the table, waits until they are stored, and returns them. */
  async history(wanted: NewRequest, options: Options = {}): Promise<BarRow[]> {
    const { request_id, state } = await this.call("add_history", wanted, options);
    if (state !== "done") {
      for await (const event of this.live([`HISTORY_READY:${request_id}`], options)) if (event.kind === "final") break;
      options.signal?.throwIfAborted();
    }
    return (await this.call("get_history_rows", { request_id }, options)).rows;
  }

  /** `truncated` is true if there are more rows than `limit`. */
  sql(sql: string, { limit, ...options }: Options & { limit?: number } = {}): Promise<SqlRows> {
    return this.call("query_sql", limit === undefined ? { sql } : { sql, limit }, options);
  }

  addTrigger(trigger: NewTrigger, options?: Options): Promise<Calls["add_trigger"]["answer"]> {
    return this.call("add_trigger", trigger, options);
  }

  removeTrigger(trigger_id: string, options?: Options): Promise<void> {
    return this.call("remove_trigger", { trigger_id }, options);
  }

  /**
   * Live topics, such as `OHLC:BTC/USDT.BINANCE:60`, `TICKS:BTC/USDT.BINANCE` or `TRIGGER:my-trigger`, until the
   * consumer stops. A lost connection is resumed without gaps or duplicates, even after a restart of the platform.
   */
  live(topics: readonly string[], options: LiveOptions = {}): AsyncGenerator<LiveEvent, void> {
    const open = (query: Record<string, unknown>, headers: Record<string, string>, signal: AbortSignal): Promise<Response> =>
      this.#fetch(`/stream${search(query)}`, { headers: { Accept: "text/event-stream", ...headers }, signal });
    return follow(open, topics, options);
  }

  async #send(name: keyof Calls, given: object, query: Record<string, string>, options: Options = {}): Promise<Response> {
    const { method, path } = CALLS[name];
    const rest: Record<string, unknown> = { ...given };
    const place = path.replace(/\{(\w+)\}/g, (_, part: string) => {
      const value = String(rest[part]);
      delete rest[part];
      return encodeURIComponent(value);
    });
    const signals = [options.signal, this.#timeoutMs > 0 ? AbortSignal.timeout(this.#timeoutMs) : undefined];
    const signal = AbortSignal.any(signals.filter((each) => each !== undefined));
    if (method !== "POST") return this.#fetch(place + search({ ...rest, ...query }), { method, signal });
    const headers = { "Content-Type": "application/json" };
    return this.#fetch(place + search(query), { method, signal, headers, body: JSON.stringify(rest) });
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    const headers = { ...this.#headers, ...(init.headers as Record<string, string>) };
    const response = await this.#read(fetch(`${this.url}/api/v1${path}`, { ...init, headers, cache: "no-store" }));
    if (!response.ok) throw await Problem.of(response);
    return response;
  }

  async #read<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      // Errors of aborted calls are thrown as they are; a TypeError is a network error.
      throw error instanceof TypeError ? new Unreachable(this.url, error) : error;
    }
  }
}

function search(query: Record<string, unknown>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const each of Array.isArray(value) ? value : [value]) found.append(name, String(each));
  }
  return found.size > 0 ? `?${found}` : "";
}
