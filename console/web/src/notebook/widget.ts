/** A live chart in a notebook, as an anywidget: the console's chart, fed by the kernel. */
import { ChartFeed } from "../chart/feed";
import { ChartView } from "../chart/view";
import { compact, percent, price } from "../data/numbers";
import { moment, periodName } from "../data/times";
import type { Bar } from "../chart/candles";
import { Kernel, type Model } from "./kernel";
import style from "./widget.css";

/** A kernel answers the chart only after the cells that it runs. */
const BUSY_MS = 2_000;

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const ticker = String(model.get("ticker"));
  const period = Number(model.get("period_seconds"));
  const box = document.createElement("section");
  box.className = "candlewright-chart";
  box.setAttribute("aria-label", `${ticker}, ${periodName(period)}`);
  box.innerHTML = `<style>${style}</style><header><b></b> <span class="legend"></span></header>
    <div class="canvas" role="img"></div><footer><span class="note" role="status"></span>
    <a href="https://www.tradingview.com/" target="_blank" rel="noreferrer">Charts by TradingView</a></footer>`;
  const part = <T extends HTMLElement>(name: string): T => box.querySelector<T>(name)!;
  const canvas = part(".canvas");
  part("b").textContent = `${ticker} ${periodName(period)}`;
  canvas.setAttribute("aria-label", `Candles of ${ticker} by ${periodName(period)}`);
  canvas.style.height = `${Number(model.get("height"))}px`;
  el.append(box);

  const kernel = new Kernel(model);
  let view: ChartView | undefined;
  let isFirst = true;
  let newest: Bar | undefined;
  let pointed: number | undefined;
  const tell = (): void => {
    const bar = pointed === undefined ? newest : view?.barAt(pointed);
    part(".legend").textContent = bar === undefined ? "" : describe(bar);
  };
  const feed = new ChartFeed(
    ticker,
    period,
    {
      reset: (bars) => {
        newest = bars[bars.length - 1];
        view?.set(bars);
        shade();
        if (isFirst && bars.length > 0) {
          isFirst = false;
          view?.toNewest();
        }
        tell();
      },
      older: (bars) => {
        view?.extend(bars);
        shade();
      },
      newest: (bar) => {
        // After a gap the chart would stay where the stored bars end.
        const leaps = newest !== undefined && bar.time > newest.time + period;
        const isFollowing = newest !== undefined && (view?.visible()?.to ?? -Infinity) >= newest.time;
        newest = bar;
        view?.update(bar);
        if (leaps && isFollowing) view?.toNewest();
        tell();
      },
    },
    kernel,
  );
  const shade = (): void =>
    view?.setBands(feed.candles.holes().map(({ from, to }) => ({ from, to, color: view!.color("warn") })));
  const ends = [
    feed.state.follow(({ phase, error, notLive }) => {
      const empty = phase === "empty" ? `No ${periodName(period)} bars are stored; waiting for live ones` : "";
      part(".note").textContent = error ?? (notLive ? `Not live: ${notLive}` : empty);
    }),
    followTheme(box, () => view?.paint()),
  ];
  const busy = setTimeout(() => {
    if (feed.state.get().phase !== "loading") return;
    part(".note").textContent = "The kernel is busy: the chart is drawn when its cells have run";
  }, BUSY_MS);
  // Only after this call is the element in the page, with a width.
  const frame = requestAnimationFrame(() => {
    view = new ChartView(canvas, period, {
      crosshair: (time) => {
        pointed = time;
        tell();
      },
      older: (inView) => void feed.older(inView),
    });
    void feed.start();
  });
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(busy);
    for (const end of ends) end();
    feed.close();
    kernel.close();
    view?.close();
    box.remove();
  };
}

function describe(bar: Bar): string {
  const cells = `O ${price(bar.open)}  H ${price(bar.high)}  L ${price(bar.low)}  C ${price(bar.close)}  V ${compact(bar.volume)}`;
  return `${moment(bar.time)} UTC  ${cells}  ${percent(bar.close / bar.open - 1)}${bar.isForming ? "  forming" : ""}`;
}

/** Jupyter, VS Code and marimo name their themes differently, so this checks whether the page's background is dark. */
function followTheme(box: HTMLElement, changed: () => void): () => void {
  const apply = (): void => {
    const theme = isDark(box) ? "dark" : "light";
    if (box.dataset.theme === theme) return;
    box.dataset.theme = theme;
    changed();
  };
  const soon = (): number => requestAnimationFrame(apply);
  const observer = new MutationObserver(soon);
  for (const each of [document.documentElement, document.body]) observer.observe(each, { attributes: true });
  const preference = matchMedia("(prefers-color-scheme: dark)");
  preference.addEventListener("change", soon);
  apply();
  soon();
  return () => {
    observer.disconnect();
    preference.removeEventListener("change", soon);
  };
}

function isDark(box: HTMLElement): boolean {
  for (let each: Element | null = box.parentElement; each !== null; each = each.parentElement ?? hostOf(each)) {
    const [red = 0, green = 0, blue = 0, alpha = 0] = pixelOf(getComputedStyle(each).backgroundColor);
    if (alpha > 127) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Parses any colour notation: marimo's mixed colours are written as `color(srgb 1 1 1)`. */
function pixelOf(color: string): Uint8ClampedArray {
  const canvas = new OffscreenCanvas(1, 1);
  const context = canvas.getContext("2d")!;
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

/** marimo shows outputs inside a shadow tree. */
function hostOf(element: Element): Element | null {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

export default { render };
