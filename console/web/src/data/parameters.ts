/** Reads a text of the trigger language without its grammar. */

const COMMENT_OR_QUOTED = /--[^\n]*|'(?:[^']|'')*'|"(?:[^"]|"")*"/g;

/** `:name` and `${name}`, outside strings and comments. */
export function parameterNames(sql: string): string[] {
  const bare = sql.replace(COMMENT_OR_QUOTED, " ");
  const found = [...bare.matchAll(/(?<![:\w]):([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}/g)];
  return [...new Set(found.map((each) => each[1] ?? each[2]!))].filter((name) => name !== "period_seconds");
}

/** The text on one line, without its comments. */
export function onOneLine(sql: string): string {
  const bare = sql.replace(COMMENT_OR_QUOTED, (found) => (found.startsWith("--") ? " " : found));
  return bare.replace(/\s+/g, " ").trim();
}
