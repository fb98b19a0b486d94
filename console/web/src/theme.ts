// Runs before the first paint, so that the page does not flash in the other theme's colours.
{
  const chosen = localStorage.getItem("theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// The current page's files are fetched in parallel with the first script, not after it.
{
  const page = location.pathname === "/" ? "/markets" : location.pathname;
  for (const each of document.querySelectorAll<HTMLMetaElement>('meta[name="page-files"]')) {
    if (!each.dataset.pages?.split(" ").includes(page)) continue;
    for (const href of each.content.split(" ")) {
      document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
    }
  }
}
