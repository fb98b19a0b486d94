/** Marks at bars, and which of their labels have room. */

export interface Mark {
  time: number;
  text: string;
  color: string;
  isAbove?: boolean;
  shape?: "arrowUp" | "arrowDown" | "circle" | "square";
}

/** As wide as a letter of the chart's font is at most, and what two labels keep between them. */
const LETTER_PIXELS = 6.5;
const GAP_PIXELS = 8;

/** Longer names, as generated ones, are labelled with their ends. */
const MOST_LETTERS = 14;
const [FIRST_LETTERS, LAST_LETTERS] = [7, 4];

export const labelOf = (name: string): string =>
  name.length > MOST_LETTERS ? `${name.slice(0, FIRST_LETTERS)}…${name.slice(-LAST_LETTERS)}` : name;

/** Each mark once. One whose label would cover that of a newer mark stays without it: `pixelOf` is where a time is drawn. */
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
