// Bundles the tests of the pure modules, and runs them with Node's test runner.
import { build } from "esbuild";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "console-tests-"));
const files = readdirSync(here).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: files.map((name) => join(here, name)),
  outdir: folder,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
});
const stream = run({ files: files.map((name) => join(folder, name.replace(/\.ts$/, ".mjs"))) });
stream.on("test:fail", () => (process.exitCode = 1));
stream.on("end", () => rmSync(folder, { recursive: true }));
stream.compose(spec).pipe(process.stdout);
