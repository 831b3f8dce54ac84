// Follows what a component writes: asks for what came after the text shown, and adds it. Stays at the end while the
// reader is there; does not move a reader who has scrolled up.
"use strict";
(() => {
  const GAP_MS = 1500;
  const CHARACTERS_MAX = 500000;
  const NEAR_END_PX = 24;

  function toEnd(pre) { pre.scrollTop = pre.scrollHeight; }

  async function follow(pre) {
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < NEAR_END_PX;
    const answer = await fetch(`${pre.dataset.output}&offset=${pre.dataset.offset}&limit=262144`, { cache: "no-store" });
    if (!answer.ok) return;
    const piece = await answer.json();
    pre.dataset.offset = piece.next_offset;
    if (piece.text) {
      pre.append(piece.text);
      if (pre.textContent.length > CHARACTERS_MAX) pre.textContent = pre.textContent.slice(-CHARACTERS_MAX / 2);
      if (atEnd) toEnd(pre);
    }
    if (piece.complete) {
      pre.dataset.complete = "";
      const note = document.querySelector("[data-output-note]");
      if (note) note.textContent = Number(piece.next_offset) ? "End of output." : "It wrote nothing.";
    }
  }

  let asking = false;
  async function look() {
    const pre = document.querySelector("pre[data-output]:not([data-complete])");
    if (pre === null || asking || document.hidden) return;
    asking = true;
    try { await follow(pre); } catch { /* the page says that the connection is lost */ } finally { asking = false; }
  }

  for (const pre of document.querySelectorAll("pre[data-output]")) toEnd(pre);
  setInterval(look, GAP_MS);
})();
