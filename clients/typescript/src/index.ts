export type * from "./api.ts";
export { Client, type ClientOptions, type Options } from "./client.ts";
export type { Connection, LiveEvent, LiveOptions } from "./live.ts";
export { type Mistake, Problem, Unreachable } from "./problem.ts";
