import type { ProblemBody } from "./api.ts";

/** A mistake in a text: where it is, and what may be meant. */
export interface Mistake {
  line?: number;
  column?: number;
  message: string;
  hint?: string;
}

/** The platform answered that it will not, or cannot. `message` is a sentence for a person. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: number;
  /** As `invalid_request`. */
  readonly code: string;
  /** Of SQL and triggers: all mistakes of the text. */
  readonly mistakes: Mistake[];
  /** When to try again, where the platform says so. */
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
      // Not of the platform itself, such as a proxy's page.
    }
    return new Problem(response.status, body, Number.isNaN(wait) ? undefined : wait);
  }
}

/** No answer came: the platform is not there, or the connection broke. `cause` has the reason. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";

  constructor(url: string, cause: unknown) {
    super(`${url} cannot be reached`, { cause });
  }
}
