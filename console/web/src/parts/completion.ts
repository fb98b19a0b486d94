/** The trigger language in an editor: its words in colour, and completion. */
import { type CompletionSource, ifNotIn } from "@codemirror/autocomplete";
import { SQLDialect, schemaCompletionSource } from "@codemirror/lang-sql";
import type { Extension } from "@codemirror/state";
import { type Language, columnCompletion, completions } from "../data/language";

const NOT_CODE = ["QuotedIdentifier", "String", "LineComment", "BlockComment"];

export function languageSupport(language: Language): Extension {
  const dialect = SQLDialect.define({
    keywords: language.keywords.join(" ").toLowerCase(),
    builtin: language.functions.map(({ name }) => name.toLowerCase()).join(" "),
    types: language.types.join(" ").toLowerCase(),
    doubleQuotedStrings: false,
  });
  const tables = Object.entries(language.tables).map(([name, columns]) => [name, columns.map(columnCompletion)]);
  const names = schemaCompletionSource({ dialect, schema: Object.fromEntries(tables) });
  const sources = [withoutTyped(names), ifNotIn(NOT_CODE, words(language))];
  return [dialect.extension, ...sources.map((autocomplete) => dialect.language.data.of({ autocomplete }))];
}

/** Without the word itself, which is taken for an alias of the table before it. */
function withoutTyped(source: CompletionSource): CompletionSource {
  return async (context) => {
    const found = await source(context);
    const typed = found && context.state.sliceDoc(found.from, context.pos);
    return found && { ...found, options: found.options.filter(({ label }) => label !== typed) };
  };
}

/** Words of the language, and columns of the tables that the text names, or of all if it names none. */
function words(language: Language): CompletionSource {
  const anywhere = completions(language);
  const tables = Object.entries(language.tables);
  return (context) => {
    const word = context.matchBefore(/[.:{]?\w*/);
    // What follows a point is a column of one table, and what follows the other two is a parameter.
    if (!word || /^[.:{]/.test(word.text) || (word.text === "" && !context.explicit)) return null;
    const used = new Set(context.state.doc.toString().toLowerCase().match(/\w+/g));
    const named = tables.filter(([name]) => used.has(name));
    const columns = (named.length > 0 ? named : tables).flatMap(([, each]) => each);
    const byName = new Map(columns.map((each) => [each.name, columnCompletion(each)]));
    return { from: word.from, options: [...anywhere, ...byName.values()], validFor: /^\w*$/ };
  };
}
