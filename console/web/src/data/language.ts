/** The trigger language and the columns of the tables, for completion. */
import { get } from "./api";

export interface Entry {
  name: string;
  signature: string;
  text: string;
  nulls: string;
  example: string;
}

export interface Form {
  name: string;
  form: string;
  text: string;
}

export interface View {
  name: string;
  text: string;
}

export interface Column {
  name: string;
  type: string;
  text: string;
}

export interface Language {
  keywords: string[];
  types: string[];
  forms: Form[];
  functions: Entry[];
  /** Views that need not be registered. */
  views: View[];
  /** Columns by table. */
  tables: Record<string, Column[]>;
}

const NOTHING: Language = { keywords: [], types: [], forms: [], functions: [], views: [], tables: {} };
let known: Promise<Language> | undefined;

/** Read once; without it an editor lacks only completion. */
export function language(): Promise<Language> {
  known ??= get<Language>("language").catch(() => {
    known = undefined;
    return NOTHING;
  });
  return known;
}

/** In CodeMirror's form. */
interface Completion {
  label: string;
  type: string;
  detail?: string;
  info?: string;
  boost?: number;
}

/** Functions with their signatures, clauses with their forms, built-in views, and all other key words. */
export function completions({ functions, forms, views, keywords }: Omit<Language, "types" | "tables">): Completion[] {
  const first = new Set(forms.map(({ name }) => name));
  return [
    ...functions.map(({ name, signature, text, nulls, example }) => ({
      label: name,
      type: "function",
      detail: signature.slice(name.length),
      info: `${text}\n${nulls}\n${example}`,
      boost: 1,
    })),
    ...forms.map(({ name, form, text }) => ({ label: name, type: "keyword", detail: form.slice(name.length), info: text })),
    ...views.map(({ name, text }) => ({ label: name, type: "class", info: text })),
    ...keywords.filter((word) => !first.has(word)).map((label) => ({ label, type: "keyword", boost: -1 })),
  ];
}

export function columnCompletion({ name, type, text }: Column): Completion {
  return { label: name, type: "property", detail: type.toLowerCase(), ...(text && { info: text }) };
}
