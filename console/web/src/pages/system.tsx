/** Every part of the platform: whether it is healthy, and what to do if it is not. */
import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { nameOf, partsOf, problemsOf, readStatus, startingOf, status } from "../data/platform";
import { bytes, counted } from "../data/numbers";
import { useValue } from "../data/value";

interface Role {
  holder?: string | null;
  epoch?: number;
  standbys?: string[];
}

/** Usual remedies, by a word in the problem. */
const ADVICE: [RegExp, string][] = [
  [/disk|space|no room/i, "Free space on the disk of the data directory, or move it with --data-dir."],
  [/memory|rss|pss/i, "Give the machine more memory, or lower the part's limits; docs/operations.md lists the settings."],
  [/exchange|venue|rate|429|418/i, "The exchange refuses requests or is down. They are retried; check [exchange.NAME] url and the network."],
  [/redis|bus/i, "The bus cannot be reached. Check bus.url; an embedded bus restarts automatically."],
  [/lag|behind|late/i, "A reader is behind. It catches up automatically once the load is lower; see its log in the data directory."],
];

export default function System() {
  const current = useValue(status);
  const [open, setOpen] = useState<string>();
  useEffect(() => void readStatus(), []);
  if (current === undefined) return <div class="waiting" aria-busy="true" />;
  const parts = partsOf(current);
  const problems = problemsOf(current);
  const starting = startingOf(current);
  const warnings = [...(current.warnings ?? []), ...parts.flatMap((part) => (part.warnings ?? []).map((text) => `${nameOf(part)}: ${text}`))];
  const roles = Object.entries((current.roles ?? {}) as Record<string, Role>);
  return (
    <div class="page">
      <div class="page-head">
        <h1>System</h1>
        {!current.healthy ? (
          <span class="tag bad">there are problems</span>
        ) : starting.length > 0 ? (
          <span class="tag">starting: {starting.join(", ")}</span>
        ) : (
          <span class="tag good">all parts are healthy</span>
        )}
        <span class="muted">version {String(current.version ?? "")}</span>
        {typeof current.data_dir === "string" && <code class="muted">{current.data_dir}</code>}
      </div>
      {problems.map((text) => (
        <p key={text} class="notice bad" role="alert">
          <b>{text}</b> {ADVICE.find(([word]) => word.test(text))?.[1] ?? "See the part's log in the data directory, in logs/."}
        </p>
      ))}
      {[...new Set(warnings)].map((text) => (
        <p key={text} class="notice">
          {text}
        </p>
      ))}
      <section class="card scroll" aria-labelledby="parts" tabIndex={0}>
        <h2 id="parts">Parts</h2>
        <table>
          <thead>
            <tr>
              <th>Part</th>
              <th>State</th>
              <th class="number wide-only">Process</th>
              <th class="number">Memory</th>
              <th class="number wide-only">Restarts</th>
              <th class="wide-only">Figures</th>
            </tr>
          </thead>
          <tbody>
            {parts.map((part) => {
              const name = nameOf(part);
              const figures = figuresOf(part);
              return (
                <Fragment key={name}>
                  <tr>
                    <td>
                      <button
                        type="button"
                        class="quiet"
                        aria-expanded={open === name}
                        onClick={() => setOpen(open === name ? undefined : name)}
                      >
                        <i class={`dot ${wellness(part)}`} /> <b>{name}</b>
                      </button>
                    </td>
                    <td>
                      {stateOf(part)}
                      {Number(part.restarts) > 0 && (
                        <small class="narrow-only warn">{counted(Number(part.restarts), "restart")}</small>
                      )}
                    </td>
                    <td class="number wide-only muted">{String(part.pid ?? "")}</td>
                    <td class="number">{typeof part.memory_bytes === "number" ? bytes(part.memory_bytes) : ""}</td>
                    <td class={`number wide-only ${Number(part.restarts) > 0 ? "warn" : "muted"}`}>{String(part.restarts ?? "")}</td>
                    <td class="wide-only wrap">
                      {figures.slice(0, 5).map(([label, value]) => (
                        <span key={label} class="pair">
                          <i>{label.replaceAll("_", " ")}</i> {value}
                        </span>
                      ))}
                    </td>
                  </tr>
                  {open === name && (
                    <tr>
                      <td colSpan={6} class="wrap">
                        {figures.map(([label, value]) => (
                          <span key={label} class="pair">
                            <i>{label.replaceAll("_", " ")}</i> {value}
                          </span>
                        ))}
                        {figures.length === 0 && <span class="muted">No figures.</span>}
                      </td>
                    </tr>
                  )}
                </Fragment>
              );
            })}
          </tbody>
        </table>
        {parts.length === 0 && (
          <p class="nothing">The parts run without a supervisor here, so there is no combined status. See each part's /status.</p>
        )}
      </section>
      {roles.length > 0 && (
        <section class="card scroll" aria-labelledby="roles" tabIndex={0}>
          <h2 id="roles">Roles</h2>
          <table>
            <thead>
              <tr>
                <th>Role</th>
                <th>Holder</th>
                <th class="number">Epoch</th>
                <th>Standing by</th>
              </tr>
            </thead>
            <tbody>
              {roles.map(([name, role]) => (
                <tr key={name}>
                  <td>
                    <b>{name}</b>
                  </td>
                  <td>{role.holder ? placeOf(role.holder) : <span class="bad">none</span>}</td>
                  <td class="number">{role.epoch ?? ""}</td>
                  <td class="muted">{role.standbys?.map(placeOf).join(", ") || "none"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}

/** `host:pid`, without the digits after it, which distinguish processes with the same pid. */
function placeOf(process: string): string {
  return process.replace(/:[^:]*$/, "");
}

type Part = ReturnType<typeof partsOf>[number];

function wellness(part: Part): string {
  if ((part.problems?.length ?? 0) > 0 || part.healthy === false) return "bad";
  return part.ready || part.standby ? "good" : "warn";
}

/** Whether a take-over would have to start its queries first. */
function isCold(part: Part & { status?: { role?: { warm?: boolean } } }): boolean {
  return part.status?.role?.warm === false;
}

function stateOf(part: Part): string {
  if (part.standby) return isCold(part) ? "standing by, not warm" : "standing by";
  if (part.ready) return "ready";
  if (part.waits_for) return `waits for ${String(part.waits_for)}`;
  return part.phase === "running" ? "not ready" : String(part.phase ?? "starting");
}

const SHOWN_ELSEWHERE = new Set([
  ...["part", "name", "version", "ready", "healthy", "standby", "problems", "warnings"],
  ...["pid", "restarts", "phase", "memory_bytes", "waits_for"],
]);

/** All other values that a part reports; nested ones have both names. */
function figuresOf(part: Part): [string, string][] {
  const found: [string, string][] = [];
  const walk = (value: unknown, name: string): void => {
    if (value === null || value === undefined || value === "" || found.length > 60) return;
    if (Array.isArray(value)) found.push([name, value.length === 0 ? "none" : value.map((each) => (typeof each === "object" ? JSON.stringify(each) : String(each))).join(", ").slice(0, 300)]);
    else if (typeof value === "object") {
      for (const [key, each] of Object.entries(value)) if (!SHOWN_ELSEWHERE.has(key)) walk(each, name ? `${name} ${key}` : key);
    } else found.push([name, typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 3 }) : String(value)]);
  };
  const { status: own, ...rest } = part as Part & { status?: unknown };
  walk(own, "");
  walk(rest, "");
  return found;
}
