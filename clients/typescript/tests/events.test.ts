import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser } from "../src/events.ts";

test("events do not depend on how their bytes are split", () => {
  const text = 'id: 6\n\n: hello\n\nid: 7\nevent: bar\ndata: {"a":\ndata: 1}\n\nretry: 5\r\ndata:x\r\n\r\n';
  const whole: string[][] = [];
  new EventParser((...event) => whole.push(event)).take(text);
  assert.deepEqual(whole, [
    ["bar", '{"a":\n1}'],
    ["message", "x"],
  ]);
  const pieces: string[][] = [];
  const parser = new EventParser((...event) => pieces.push(event));
  for (const character of text) parser.take(character);
  assert.deepEqual(pieces, whole);
  assert.equal(parser.id, "7");
});

test("the id of an event counts once the event is complete", () => {
  const ids: string[] = [];
  const parser = new EventParser(() => ids.push(parser.id), "1");
  parser.take("id: 2\ndata: x\n");
  assert.equal(parser.id, "1");
  parser.take("\nid: 3\n\n");
  assert.deepEqual(ids, ["2"]);
  assert.equal(parser.id, "3");
});
