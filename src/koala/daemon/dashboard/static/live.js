// Keeps the page current: listens to the daemon's events, asks for the page again when something happened (at most once a
// second) and changes what differs. Says when the connection is lost, and when it is back.
"use strict";
(() => {
  const GAP_MS = 1000;
  const RETRY_MS_MAX = 8000;
  const ANNOUNCED_MAX = 3;

  const main = document.getElementById("main");
  const badge = document.getElementById("connection");
  const lost = document.getElementById("lost");
  const announcer = document.getElementById("announcer");
  let source = null; // the stream of events: none while nobody sees the page, or the connection is lost
  let stale = false; // whether something happened since the page was asked for
  let asking = false;
  let askedAt = Date.now();
  let retryMs = GAP_MS;
  let signedOut = false;

  // ---------------------------------------------------------------------------------------- connection

  function show(state, word, banner = "") {
    badge.hidden = false;
    badge.dataset.connection = state;
    badge.querySelector("[data-connection-word]").textContent = word;
    lost.textContent = banner;
    lost.hidden = !banner;
  }

  function open() {
    if (document.hidden || signedOut) return;
    close();
    source = new EventSource("/v1/events/stream");
    source.addEventListener("open", () => {
      if (!lost.hidden) say("Connected again.");
      show("live", "live");
      retryMs = GAP_MS;
      refresh();
    });
    source.addEventListener("error", disconnected);
    source.addEventListener("journal", () => {
      stale = true;
      if (Date.now() - askedAt >= GAP_MS) refresh();
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  function disconnected() {
    close();
    show("lost", "lost", "The connection to the daemon is lost. What you see may be old; trying again.");
  }

  function showSignedOut() {
    close();
    signedOut = true;
    show("lost", "signed out", "You are signed out. ");
    const link = document.createElement("a");
    link.href = "/login";
    link.textContent = "Sign in again";
    lost.append(link);
  }

  // ------------------------------------------------------------------------------------------- refresh

  function readerSelects() {
    const selection = getSelection();
    return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
  }

  // The page's own request also shows why there are no events: nobody answers, or the session has ended.
  async function refresh() {
    if (asking || (source !== null && readerSelects())) return;
    asking = true;
    stale = false;
    askedAt = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.status === 401 || new URL(answer.url).pathname === "/login") return showSignedOut();
      if (answer.ok) take(await answer.text());
      if (answer.status < 500 && source === null) open();
    } catch {
      disconnected();
    } finally {
      asking = false;
    }
  }

  function look() {
    if (document.hidden || signedOut) return;
    const waitedMs = Date.now() - askedAt;
    const everyMs = Number(main.dataset.refreshS) * 1000;
    if (source !== null && (stale || (everyMs > 0 && waitedMs >= everyMs))) refresh();
    if (source === null && waitedMs >= retryMs) {
      retryMs = Math.min(2 * retryMs, RETRY_MS_MAX);
      refresh();
    }
  }

  function states() {
    const found = new Map();
    for (const each of main.querySelectorAll("[data-job][data-state]")) found.set(each.dataset.job, each.dataset.state);
    return found;
  }

  function take(text) {
    const wanted = new DOMParser().parseFromString(text, "text/html");
    const fresh = wanted.getElementById("main");
    if (fresh === null) return;
    if (readerSelects()) { stale = true; return; }
    const before = states();
    const focused = document.activeElement;
    if (fresh.querySelector(":scope > .banner-notice") === null) {
      for (const notice of main.querySelectorAll(":scope > .banner-notice")) {
        fresh.prepend(document.importNode(notice, true)); // stays until the reader leaves the page
      }
    }
    window.koalaMorph(main, fresh);
    if (document.title !== wanted.title) document.title = wanted.title;
    if (focused !== document.body && !focused.isConnected) main.focus({ preventScroll: true });
    const changed = [...states()].filter(([job, state]) => before.get(job) !== state);
    if (changed.length) {
      const told = changed.slice(0, ANNOUNCED_MAX).map(([job, state]) => `Job ${job} is ${state}.`);
      if (changed.length > ANNOUNCED_MAX) told.push(`${changed.length - ANNOUNCED_MAX} more changed.`);
      say(told.join(" "));
    }
  }

  function say(text) { announcer.textContent = text; }

  // --------------------------------------------------------------------------------------------- begin

  window.koalaRefresh = refresh;
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  setInterval(look, GAP_MS);
  show("off", "connecting");
  open();
})();
