// Light or dark: as the system says, unless the reader chose. Runs before the page is drawn, so that nothing flashes.
"use strict";
(() => {
  const root = document.documentElement;
  const read = () => { try { return localStorage.getItem("koala-theme"); } catch { return null; } };
  const write = (theme) => { try { localStorage.setItem("koala-theme", theme); } catch { /* lasts for this page */ } };
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (systemIsDark.matches ? "dark" : "light")) === "dark";
  const kept = read();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;

  window.koalaToggleTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    write(root.dataset.theme);
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.hidden = false;
      button.addEventListener("click", window.koalaToggleTheme);
    }
  });
})();
