import type { ProblemBody } from "./api.ts";

/** An error in a text: its position, and a hint. */
export interface Mistake {
  line?: number;
  column?: number;
  message: string;
  hint?: string;
}

/** The platform refused or failed. `message` is a sentence for people. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: number;
  /** For example `invalid_request`. */
  readonly code: string;
  /** For SQL and triggers: all errors in the text. */
  readonly mistakes: Mistake[];
  /** When to retry, if the platform says so. */
  readonly retryAfterSeconds: number | undefined;

  constructor(status: number, body: Partial<ProblemBody>, retryAfterSeconds?: number) {
    super(String(body.detail ?? body.title ?? `the platform answered ${status}`));
    this.status = status;
    this.code = String(body.type ?? "http").replace(/^urn:candlewright:problem:/, "");
    const found = Array.isArray(body["errors"]) ? body["errors"] : body["line"] === undefined ? [] : [body];
    this.mistakes = found.map((each: Partial<Mistake>) => ({ ...each, message: String(each.message ?? body.detail) }));
    this.retryAfterSeconds = retryAfterSeconds;
  }

  static async of(response: Response): Promise<Problem> {
    const wait = Number.parseFloat(response.headers.get("retry-after") ?? "");
    let body: Partial<ProblemBody> = {};
    try {
      body = (await response.json()) as ProblemBody;
    } catch {
      // Not from the platform itself, but for example a proxy's page.
    }
    return new Problem(response.status, body, Number.isNaN(wait) ? undefined : wait);
  }
}

/** There was no answer: the platform is down, or the connection broke. `cause` has the reason. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";

  constructor(url: string, cause: unknown) {
    super(`${url} cannot be reached`, { cause });
  }
}
