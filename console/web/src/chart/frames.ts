/**
 * Live charts are drawn together in one frame, because the browser recomposes the whole page after each frame that
 * changed something. More charts mean longer pauses: one chart moves smoothly, twenty are drawn ten times a second.
 */
const PAUSE_OF_EACH_MS = 5;

const waiting = new Set<() => void>();
let isPlanned = false;
let lastAt = 0;
let lastCount = 0;

/** Calls `draw` in the next frame for charts, only once however often it is requested. */
export function inNextFrame(draw: () => void): void {
  waiting.add(draw);
  if (isPlanned) return;
  isPlanned = true;
  const pause = lastAt + lastCount * PAUSE_OF_EACH_MS - performance.now();
  setTimeout(() => requestAnimationFrame(run), Math.max(0, pause));
}

export function cancelFrame(draw: () => void): void {
  waiting.delete(draw);
}

function run(): void {
  isPlanned = false;
  lastAt = performance.now();
  lastCount = waiting.size;
  const due = [...waiting];
  waiting.clear();
  for (const draw of due) draw();
}
