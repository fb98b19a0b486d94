/** What the trigger language and the tables have, for completion. */
import { get } from "./api";

export interface Language {
  keywords: string[];
  functions: string[];
  /** Columns by table. */
  tables: Record<string, string[]>;
}

const NOTHING: Language = { keywords: [], functions: [], tables: {} };
let known: Promise<Language> | undefined;

/** Read once; an editor without it only lacks completion. */
export function language(): Promise<Language> {
  known ??= get<Language>("language").catch(() => {
    known = undefined;
    return NOTHING;
  });
  return known;
}
