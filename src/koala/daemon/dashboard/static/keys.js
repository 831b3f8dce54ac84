// Keyboard shortcuts; the help dialog lists them. They rest while the reader types, or holds Ctrl, Alt or Meta.
"use strict";
(() => {
  const GO = { o: "/", j: "/jobs", n: "/network" };
  const CHORD_MS = 1500;
  const help = document.getElementById("help");
  let goUntil = 0;

  function typing(element) {
    return element instanceof HTMLElement && (element.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName));
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || typing(event.target)) return;
    if (performance.now() < goUntil && GO[event.key]) {
      goUntil = 0;
      location.assign(GO[event.key]);
      return;
    }
    goUntil = event.key === "g" ? performance.now() + CHORD_MS : 0;
    if (event.key === "?") help.open ? help.close() : help.showModal();
    else if (event.key === "t") window.koalaToggleTheme();
    else if (event.key === "r") window.koalaRefresh();
    else return;
    event.preventDefault();
  });

  for (const button of document.querySelectorAll("[data-help]")) {
    button.hidden = false;
    button.addEventListener("click", () => help.showModal());
  }
})();
