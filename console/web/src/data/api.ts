/** Requests to /api/v1. Every error is a Problem whose message can be shown to the user. */
import { Value } from "./value";

export interface Mistake {
  line: number;
  column: number;
  message: string;
  hint?: string;
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    sentence: string,
    readonly mistakes: Mistake[] = [],
    readonly hint = "",
  ) {
    super(sentence);
  }
}

/** Set when the server requires a token; the shell then asks the user for it. It is kept in a cookie that no script can read. */
export const tokenWanted = new Value(false);

type Query = Record<string, string | number | boolean | string[] | undefined>;

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  const text = search.toString();
  return `/api/v1/${path}${text && `?${text}`}`;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(await ask(address(path, query), { signal }));
}

export async function send<T>(method: "POST" | "DELETE", path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, headers: { "Content-Type": "application/json" }, signal };
  if (body !== undefined) init.body = JSON.stringify(body);
  return answer<T>(await ask(address(path), init));
}

async function ask(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { cache: "no-store", credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "The platform cannot be reached.");
  }
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (response.status === 204 ? undefined : await response.json()) as T;
  throw await problemOf(response);
}

export async function problemOf(response: Response): Promise<Problem> {
  if (response.status === 401) tokenWanted.set(true);
  const sentence = `The platform answered ${response.status} ${response.statusText}.`;
  let body: Record<string, unknown>;
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    return new Problem(response.status, sentence);
  }
  const mistakes = Array.isArray(body.errors) ? (body.errors as Mistake[]) : [];
  const first = typeof body.line === "number" ? [body as unknown as Mistake] : [];
  return new Problem(
    response.status,
    String(body.detail ?? body.title ?? sentence),
    (mistakes.length > 0 ? mistakes : first).map((each) => ({ ...each, message: messageOf(each, body) })),
    String(body.hint ?? ""),
  );
}

function messageOf(mistake: Mistake, body: Record<string, unknown>): string {
  const own = mistake as Mistake & { detail?: string; text?: string };
  return own.message ?? own.detail ?? own.text ?? String(body.detail ?? body.title);
}
