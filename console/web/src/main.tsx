import { render } from "preact";
import { watchStatus } from "./data/platform";
import { App } from "./shell/app";
import { onKey } from "./shell/keys";
import { interceptLinks } from "./shell/router";

addEventListener("keydown", onKey);
addEventListener("click", interceptLinks);
watchStatus();
render(<App />, document.getElementById("app")!);
