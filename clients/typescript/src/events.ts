/** Parses a stream of server-sent events; https://html.spec.whatwg.org/multipage/server-sent-events.html */
export class EventParser {
  /** The id of the last complete event, which may have had no data. */
  id: string;
  #event: (kind: string, data: string) => void;
  #rest = "";
  #kind = "";
  #data: string[] = [];
  #nextId: string;

  constructor(event: (kind: string, data: string) => void, id = "") {
    this.#event = event;
    this.id = this.#nextId = id;
  }

  take(text: string): void {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    for (const line of lines) this.#line(line);
  }

  #line(line: string): void {
    if (line === "") {
      this.id = this.#nextId;
      if (this.#data.length > 0) this.#event(this.#kind || "message", this.#data.join("\n"));
      this.#kind = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#kind = value;
    else if (name === "id") this.#nextId = value;
  }
}
