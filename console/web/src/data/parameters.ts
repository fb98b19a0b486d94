/** Finds the parameters in a text. */

/** `:name` and `${name}`, outside strings and comments. */
export function parameterNames(sql: string): string[] {
  const bare = sql.replace(/--[^\n]*|'(?:[^']|'')*'|"(?:[^"]|"")*"/g, " ");
  const found = [...bare.matchAll(/(?<![:\w]):([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}/g)];
  return [...new Set(found.map((each) => each[1] ?? each[2]!))].filter((name) => name !== "period_seconds");
}
