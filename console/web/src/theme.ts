// Runs before the first paint, so that a chosen theme does not flash in the other one's colours.
{
  const chosen = localStorage.getItem("theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// The files of the page in the address are fetched beside the first script, not after it.
{
  const page = location.pathname === "/" ? "/markets" : location.pathname;
  for (const each of document.querySelectorAll<HTMLMetaElement>('meta[name="page-files"]')) {
    if (!each.dataset.pages?.split(" ").includes(page)) continue;
    for (const href of each.content.split(" ")) {
      document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
    }
  }
}
