/** A CodeMirror editor for SQL. It is in a shadow root, so its styles need no inline style elements. */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Mistake } from "../data/api";
import type { Language } from "../data/language";
import { languageSupport } from "./completion";

interface Props {
  text: string;
  label: string;
  hint?: string;
  language: Language | undefined;
  mistakes: Mistake[];
  change: (text: string) => void;
  /** Ctrl+Enter. */
  run: () => void;
}

export function Editor(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(props);
  const dialect = useRef(new Compartment());
  latest.current = props;

  useLayoutEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: props.text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          highlightActiveLine(),
          autocompletion(),
          lintGutter(),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": props.label }),
          placeholder(props.hint ?? ""),
          // Tab leaves the editor, as in every other field.
          Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => (latest.current.run(), true) }])),
          keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
          dialect.current.of([]),
          syntaxHighlighting(HIGHLIGHT),
          THEME,
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.change(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => {
      editor.destroy();
      view.current = null;
    };
  }, []);
  useEffect(() => {
    if (props.language) view.current?.dispatch({ effects: dialect.current.reconfigure(languageSupport(props.language)) });
  }, [props.language]);
  // Before the next key: later, this would put back a text from before it.
  useLayoutEffect(() => {
    const editor = view.current;
    if (editor === null || editor.state.doc.toString() === props.text) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: props.text } });
  }, [props.text]);
  useEffect(() => {
    const editor = view.current;
    if (editor !== null) editor.dispatch(setDiagnostics(editor.state, props.mistakes.map((each) => place(editor, each))));
  }, [props.mistakes]);

  return <div class="editor" ref={host} />;
}

/** From the position of an error to the end of the word there. */
function place(editor: EditorView, mistake: Mistake): Diagnostic {
  const { doc } = editor.state;
  const line = doc.line(Math.min(Math.max(1, mistake.line), doc.lines));
  const from = Math.min(line.to, line.from + Math.max(0, mistake.column - 1));
  const word = /^(\w+|\W)/.exec(doc.sliceString(from, line.to))?.[0].length ?? 0;
  const message = mistake.hint ? `${mistake.message}\n${mistake.hint}` : mistake.message;
  return { from: word > 0 ? from : Math.max(line.from, from - 1), to: from + word, severity: "error", message };
}

const HIGHLIGHT = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--info)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--var-c)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.typeName, color: "var(--var-b)" },
  { tag: tags.standard(tags.name), color: "var(--var-b)" },
]);

const THEME = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", background: "var(--panel)", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace', lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { background: "var(--panel)", color: "var(--muted)", border: "0" },
  ".cm-activeLine": { background: "color-mix(in srgb, var(--sunk) 55%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--info) 28%, transparent)",
  },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-matchingBracket": { background: "var(--accent-ground)", outline: "1px solid var(--line)" },
  ".cm-tooltip": {
    background: "var(--raised)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    boxShadow: "var(--shadow)",
    color: "var(--text)",
  },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent-ground)", color: "var(--text)" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)", whiteSpace: "pre-line" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad)",
    textUnderlineOffset: "3px",
  },
  ".cm-lint-marker-error": { content: '""', background: "var(--bad)", borderRadius: "50%", width: "8px", height: "8px", margin: "6px 3px" },
});
