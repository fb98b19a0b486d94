/** The pages with an editor, loaded together. */
export { default as Sql } from "./sql";
export { default as Triggers } from "./triggers";
