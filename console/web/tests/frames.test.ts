import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelFrame, inNextFrame } from "../src/chart/frames";

test("charts are drawn together, once each, and the more there are the less often", async () => {
  let frames = 0;
  Object.assign(globalThis, { requestAnimationFrame: (run: () => void) => ((frames += 1), run()) });
  const drawn = new Array<number>(20).fill(0);
  const draws = drawn.map((_, chart) => () => void (drawn[chart]! += 1));
  const never = (): void => assert.fail();
  const end = performance.now() + 450;
  while (performance.now() < end) {
    for (const draw of draws) inNextFrame(draw);
    inNextFrame(never);
    cancelFrame(never);
    await new Promise((done) => setTimeout(done, 2));
  }
  assert.ok(frames >= 2 && frames <= 6, `${frames} frames`);
  assert.ok(drawn.every((count) => count === frames));
});
