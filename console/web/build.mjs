// Bundles src/ into dist/: index.html, assets with their hash in the name (each also as .gz and .br), and licences.txt.
// The chart of notebooks is one file in the client's package.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const made = join(here, "dist.new");
const dist = join(here, "dist");

rmSync(made, { recursive: true, force: true });
mkdirSync(made);
const options = {
  absWorkingDir: here,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  metafile: true,
  legalComments: "none",
  logLevel: "warning",
};
const { metafile } = await build({
  ...options,
  entryPoints: ["src/main.tsx", "src/theme.ts", "src/app.css"],
  outdir: "dist.new/assets",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  splitting: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "file" },
});

const asset = (source) => {
  const [file] = Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === source);
  return `assets/${basename(file)}`;
};
// Files that the first script imports are requested together with it, not after it.
const main = Object.values(metafile.outputs).find(({ entryPoint }) => entryPoint === "src/main.tsx");
const shared = new Set(imports(main).map((path) => `/assets/${basename(path)}`));
const preloads = [...shared].map((path) => `<link rel="modulepreload" href="${path}" />`);
// A page's own files are requested before the first script has run, by `theme.ts`.
const loaded = { "src/pages/chart.tsx": "/chart", "src/pages/editing.ts": "/sql /triggers" };
const files = Object.entries(loaded).map(([source, pages]) => {
  const [path] = Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === source);
  const names = [...imported(path)].map((each) => `/assets/${basename(each)}`).filter((each) => !shared.has(each));
  return `<meta name="page-files" data-pages="${pages}" content="${names.join(" ")}" />`;
});
const page = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("{{theme}}", asset("src/theme.ts"))
  .replace("{{style}}", asset("src/app.css"))
  .replace("{{preloads}}", preloads.join("\n    "))
  .replace("{{files}}", files.join("\n    "))
  .replace("{{main}}", asset("src/main.tsx"));
writeFileSync(join(made, "index.html"), page);
writeFileSync(join(made, "icon.svg"), readFileSync(join(here, "src/icon.svg")));
writeFileSync(join(made, "licences.txt"), licences("The console", Object.keys(metafile.inputs)));

const live = join(here, "../../candlewright/client/live");
const widget = await build({
  ...options,
  entryPoints: ["src/notebook/widget.ts"],
  outfile: join(live, "chart.js"),
  loader: { ".css": "text" },
});
writeFileSync(join(live, "chart.licences.txt"), licences("The chart of notebooks", Object.keys(widget.metafile.inputs)));

for (const name of readdirSync(join(made, "assets"))) {
  const bytes = readFileSync(join(made, "assets", name));
  writeFileSync(join(made, "assets", `${name}.gz`), gzipSync(bytes, { level: 9 }));
  const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  writeFileSync(join(made, "assets", `${name}.br`), brotliCompressSync(bytes, { params: quality }));
}
rmSync(dist, { recursive: true, force: true });
renameSync(made, dist);

function imports(output) {
  return output.imports.filter(({ kind }) => kind === "import-statement").map(({ path }) => path);
}

/** A file of the bundle, and every file that it needs before it runs. */
function imported(path, found = new Set()) {
  if (!found.has(path)) {
    found.add(path);
    for (const each of imports(metafile.outputs[path])) imported(each, found);
  }
  return found;
}

/** The licence of each package that is in the bundle, as the package ships it. */
function licences(what, inputs) {
  const packages = new Set(
    inputs.map((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter((name) => name !== undefined),
  );
  const parts = [
    `${what} contains these packages.\n\n` +
      "Charts: TradingView Lightweight Charts™, Copyright (c) TradingView, Inc. https://www.tradingview.com/\n",
  ];
  for (const name of [...packages].sort()) {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    const text = file === undefined ? "" : readFileSync(join(folder, file), "utf8").trim();
    parts.push(`${name} ${version} (${license})\n\n${text}\n`);
  }
  return parts.join(`\n${"-".repeat(100)}\n\n`);
}
