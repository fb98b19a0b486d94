/** The frame around every page: navigation, search, the state of the connection. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { tokenWanted } from "../data/api";
import { connection, refusal } from "../data/live";
import { counted } from "../data/numbers";
import { problemsOf, reachable, startingOf, status } from "../data/platform";
import { useValue } from "../data/value";
import Events from "../pages/events";
import Markets from "../pages/markets";
import Quality from "../pages/quality";
import Requests from "../pages/requests";
import System from "../pages/system";
import { Dialog } from "./dialog";
import { Icon, type IconName } from "./icons";
import { shortcuts, useShortcuts } from "./keys";
import { Palette } from "./palette";
import { SignIn, SignOut } from "./session";
import { go, place } from "./router";
import { switchTheme, theme } from "./theme";

interface Page {
  path: string;
  name: string;
  key: string;
  icon: IconName;
  /** Pages with charts or an editor are loaded when they are opened; the others are in the first file. */
  content?: ComponentType;
  load?: () => Promise<ComponentType>;
}

const editing = () => import("../pages/editing");

export const PAGES: Page[] = [
  { path: "/chart", name: "Chart", key: "c", icon: "chart", load: () => import("../pages/chart").then((its) => its.default) },
  { path: "/markets", name: "Markets", key: "m", icon: "markets", content: Markets },
  { path: "/triggers", name: "Triggers", key: "t", icon: "triggers", load: () => editing().then((its) => its.Triggers) },
  { path: "/events", name: "Events", key: "e", icon: "events", content: Events },
  { path: "/sql", name: "SQL", key: "s", icon: "sql", load: () => editing().then((its) => its.Sql) },
  { path: "/requests", name: "Requests", key: "r", icon: "requests", content: Requests },
  { path: "/quality", name: "Quality", key: "q", icon: "quality", content: Quality },
  { path: "/system", name: "System", key: "y", icon: "system", content: System },
];

export function App() {
  const { path } = useValue(place);
  const page = PAGES.find((each) => each.path === path);
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const isStranger = useValue(tokenWanted);

  useEffect(() => {
    if (path === "/") go(`/markets${location.search}`, true);
  }, [path]);
  useEffect(() => {
    if (page && page.path !== "/chart") document.title = `${page.name} · candlewright`;
  }, [page]);
  useShortcuts([
    { keys: "Ctrl+K", text: "Find a market or a page", run: () => setPalette(true) },
    { keys: "/", text: "Find a market or a page", run: () => setPalette(true) },
    { keys: "?", text: "Show this help", run: () => setHelp((shown) => !shown) },
    { keys: "t", text: "Switch between light and dark", run: switchTheme },
    ...PAGES.map((each) => ({ keys: `g ${each.key}`, text: each.name, run: () => go(each.path) })),
  ]);

  if (isStranger) return <SignIn />;
  return (
    <div class="frame">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <nav class="rail" aria-label="Pages">
        {PAGES.map((each) => (
          <a
            key={each.path}
            href={each.path}
            aria-current={each.path === path ? "page" : undefined}
            title={`${each.name} (g ${each.key})`}
          >
            <Icon name={each.icon} />
            <span>{each.name}</span>
          </a>
        ))}
      </nav>
      <header class="bar">
        <a class="brand" href="/markets" aria-label="candlewright">
          <img src="/icon.svg" alt="" width="18" height="18" />
          <b>candlewright</b>
        </a>
        <button class="find" type="button" onClick={() => setPalette(true)}>
          <Icon name="search" />
          <span>Find a market</span>
          <kbd>Ctrl K</kbd>
        </button>
        <Health />
        <SignOut />
        <ThemeButton />
        <button class="quiet square" type="button" title="Keyboard (?)" onClick={() => setHelp(true)}>
          <span aria-hidden="true">?</span>
          <span class="unseen">Keyboard shortcuts</span>
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        <Lost />
        {page ? <Loaded key={page.path} page={page} /> : path !== "/" && <Nowhere path={path} />}
      </main>
      {palette && <Palette pages={PAGES} close={() => setPalette(false)} />}
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

function Loaded({ page }: { page: Page }) {
  const [, redraw] = useState(0);
  const [failed, setFailed] = useState(false);
  const Content = page.content;
  useEffect(() => {
    if (page.content) return;
    page.load?.().then(
      (content) => {
        page.content = content;
        redraw((count) => count + 1);
      },
      () => setFailed(true),
    );
  }, [page]);
  if (failed) return <p class="notice bad">This page could not be loaded. Reload it once the platform is running again.</p>;
  return Content ? <Content /> : <div class="waiting" aria-busy="true" />;
}

function Nowhere({ path }: { path: string }) {
  return (
    <div class="page">
      <h1>Not found</h1>
      <p>
        There is no page {path}. <a href="/markets">Markets</a>
      </p>
    </div>
  );
}

/** The state of the connection, as a coloured dot and in words. */
function Health() {
  const stream = useValue(connection);
  const answers = useValue(reachable);
  const current = useValue(status);
  const problems = problemsOf(current);
  const starting = startingOf(current);
  const lost = !answers || stream === "lost";
  const isUnwell = problems.length > 0 || starting.length > 0;
  const kind = lost ? "bad" : isUnwell ? "warn" : stream === "connecting" ? "wait" : "good";
  const text = lost
    ? "Connection lost"
    : problems.length > 0
      ? counted(problems.length, "problem")
      : starting.length > 0
        ? `${counted(starting.length, "part")} starting`
        : stream === "live"
          ? "Live"
          : stream === "connecting"
            ? "Connecting"
            : "Connected";
  return (
    <a class={`health ${kind}`} href="/system">
      <i class="dot" />
      <span role="status">{text}</span>
    </a>
  );
}

function Lost() {
  const stream = useValue(connection);
  const answers = useValue(reachable);
  const reason = useValue(refusal);
  if (answers && stream !== "lost") return null;
  return (
    <p class="notice bad slim" role="alert">
      {reason || "The connection to the platform is lost. Reconnecting; missed data will be filled in."}
    </p>
  );
}

function ThemeButton() {
  const dark = useValue(theme) === "dark";
  return (
    <button class="quiet square" type="button" title="Light or dark (t)" onClick={switchTheme}>
      <Icon name={dark ? "sun" : "moon"} />
      <span class="unseen">{dark ? "Light" : "Dark"} colours</span>
    </button>
  );
}

function Help({ close }: { close: () => void }) {
  const seen = new Set<string>();
  const list = shortcuts().filter(({ text }) => !seen.has(text) && seen.add(text));
  return (
    <Dialog title="Keyboard" close={close}>
      <dl class="keys">
        {list.map(({ keys, text }) => (
          <div key={keys}>
            <dt>
              {keys.split(/[ +]/).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p class="muted">
        Charts by <a href="https://www.tradingview.com/">TradingView</a>. <a href="/licences.txt">Licences</a>
      </p>
    </Dialog>
  );
}
