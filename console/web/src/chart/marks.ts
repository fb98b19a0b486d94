/** Marks at bars, and which of their labels have room. */

export interface Mark {
  time: number;
  text: string;
  color: string;
  isAbove?: boolean;
  shape?: "arrowUp" | "arrowDown" | "circle" | "square";
}

/** The greatest width of a letter in the chart's font, and the gap between two labels. */
const LETTER_PIXELS = 6.5;
const GAP_PIXELS = 8;

/** Longer names, such as generated ids, are abbreviated to their first and last characters. */
const MOST_LETTERS = 14;
const [FIRST_LETTERS, LAST_LETTERS] = [7, 4];

export const labelOf = (name: string): string =>
  name.length > MOST_LETTERS ? `${name.slice(0, FIRST_LETTERS)}…${name.slice(-LAST_LETTERS)}` : name;

/** Each mark once. A label that would cover a newer mark's label is left out. `pixelOf`: where a time is drawn. */
export function withoutOverlaps(marks: Mark[], pixelOf: (time: number) => number): Mark[] {
  const begin = { above: Infinity, below: Infinity };
  const seen = new Set<string>();
  const found: Mark[] = [];
  for (const mark of [...marks].reverse()) {
    const key = `${mark.time} ${mark.isAbove} ${mark.shape} ${mark.text}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const side = mark.isAbove ? "above" : "below";
    const half = (mark.text.length * LETTER_PIXELS + GAP_PIXELS) / 2;
    const middle = pixelOf(mark.time);
    const hasRoom = mark.text === "" || middle + half <= begin[side];
    if (hasRoom && mark.text !== "") begin[side] = middle - half;
    found.push(hasRoom ? mark : { ...mark, text: "" });
  }
  return found.reverse();
}
