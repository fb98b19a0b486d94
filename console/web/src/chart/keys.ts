/** The keys of every chart. */
import type { Shortcut } from "../shell/keys";
import type { ChartView } from "./view";

/** `view`: the chart while there is one; `step` moves the crosshair by bars and describes the bar there. */
export function chartKeys(view: () => ChartView | null | undefined, step: (bars: number) => void, unpoint: () => void): Shortcut[] {
  return [
    { keys: "ArrowLeft", text: "Back in time", run: () => view()?.pan(-0.2) },
    { keys: "ArrowRight", text: "Forward in time", run: () => view()?.pan(0.2) },
    { keys: "Shift+ArrowLeft", text: "Crosshair to the bar before", run: () => step(-1) },
    { keys: "Shift+ArrowRight", text: "Crosshair to the bar after", run: () => step(1) },
    { keys: "Escape", text: "Hide the crosshair", run: unpoint },
    { keys: "+", text: "Zoom in", run: () => view()?.zoom(0.7) },
    { keys: "-", text: "Zoom out", run: () => view()?.zoom(1.4) },
    { keys: "End", text: "To the newest bar", run: () => view()?.toNewest() },
    { keys: "Home", text: "All loaded bars", run: () => view()?.fit() },
  ];
}
