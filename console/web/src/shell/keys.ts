/** Keyboard shortcuts. A page adds its own while it is shown; the help lists the active ones. */
import { useEffect } from "preact/hooks";

export interface Shortcut {
  keys: string;
  text: string;
  run: () => void;
  /** In force only while the focus is inside this. */
  within?: { current: HTMLElement | null };
}

const active: Shortcut[][] = [];
let pending = "";
let pendingSince = 0;

export const shortcuts = (): Shortcut[] => active.flat();

export function useShortcuts(list: Shortcut[], inputs: unknown[] = []): void {
  useEffect(() => {
    active.push(list);
    return () => {
      active.splice(active.indexOf(list), 1);
    };
  }, inputs);
}

export function isTyping(target: EventTarget | null): boolean {
  const element = target instanceof Element ? target : null;
  return (
    element?.closest("input, textarea, select, [contenteditable], .editor, dialog") != null ||
    element?.shadowRoot != null
  );
}

/** `g c` means g followed by c; `Ctrl+K` also works in fields. */
export function onKey(event: KeyboardEvent): void {
  const chord = event.ctrlKey || event.metaKey;
  if (event.altKey || (isTyping(event.target) && !chord)) return;
  const shift = event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "";
  const key = chord ? `Ctrl+${event.key.toUpperCase()}` : shift + event.key;
  const sequence = performance.now() - pendingSince < 1200 && pending ? `${pending} ${key}` : key;
  const isInForce = ({ within }: Shortcut): boolean => within === undefined || (within.current?.contains(event.target as Node) ?? false);
  const all = shortcuts().filter(isInForce).reverse();
  const found = all.find((each) => each.keys === sequence) ?? all.find((each) => each.keys === key);
  pending = "";
  if (found !== undefined) {
    event.preventDefault();
    found.run();
  } else if (all.some((each) => each.keys.startsWith(`${key} `))) {
    pending = key;
    pendingSince = performance.now();
  }
}
