import { Value } from "../data/value";

export type Theme = "light" | "dark";

export const theme = new Value<Theme>(document.documentElement.dataset.theme === "dark" ? "dark" : "light");

theme.follow((value) => {
  document.documentElement.dataset.theme = value;
});

export function switchTheme(): void {
  const next = theme.get() === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  theme.set(next);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  if (localStorage.getItem("theme") === null) theme.set(matches ? "dark" : "light");
});
