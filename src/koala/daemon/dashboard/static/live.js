// Keeps the page true: listens to the daemon's events, asks for the page again when something happened (at most once a
// second) and changes what differs. Says when the connection is lost, and when it is back.
"use strict";
(() => {
  const REFRESH_GAP_MS = 1000;
  const RETRY_MS = [500, 1000, 2000, 4000, 8000];
  const ANNOUNCED_MAX = 3;

  const main = document.getElementById("main");
  const badge = document.getElementById("connection");
  const lost = document.getElementById("lost");
  const announcer = document.getElementById("announcer");
  let source = null;
  let tries = 0;
  let retryTimer = null;
  let refreshTimer = null;
  let asking = false;
  let againAfter = false;
  let refreshedAt = Date.now();
  let wasLost = false;

  // ---------------------------------------------------------------------------------------- connection

  function show(state, word) {
    badge.hidden = false;
    badge.dataset.connection = state;
    badge.querySelector("[data-connection-word]").textContent = word;
  }

  function connected() {
    tries = 0;
    show("live", "live");
    if (wasLost) {
      wasLost = false;
      lost.hidden = true;
      say("Connected again.");
    }
    refreshSoon(0);
  }

  function disconnected() {
    close();
    wasLost = true;
    show("lost", "lost");
    lost.textContent = "The connection to the daemon is lost. What you see may be old; trying again.";
    lost.hidden = false;
    retryTimer = setTimeout(connect, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]);
    tries += 1;
  }

  function signedOut() {
    close();
    show("lost", "signed out");
    lost.textContent = "You are signed out. ";
    const link = document.createElement("a");
    link.href = "/login";
    link.textContent = "Sign in again";
    lost.append(link);
    lost.hidden = false;
  }

  function close() {
    clearTimeout(retryTimer);
    source?.close();
    source = null;
  }

  async function connect() {
    close();
    if (document.hidden) return; // a page that nobody sees holds no connection
    if (wasLost) {
      // An event source does not tell why it cannot connect; a plain request does.
      try {
        const answer = await fetch("/v1/whoami", { headers: { Accept: "application/json" }, cache: "no-store" });
        if (answer.status === 401) return signedOut();
        if (!answer.ok) return disconnected();
      } catch {
        return disconnected();
      }
    }
    source = new EventSource("/v1/events/stream");
    source.addEventListener("open", connected);
    source.addEventListener("error", disconnected);
    source.addEventListener("journal", () => refreshSoon(REFRESH_GAP_MS));
  }

  // ------------------------------------------------------------------------------------------- refresh

  function refreshSoon(gapMs) {
    if (refreshTimer !== null) return;
    const wait = Math.max(0, refreshedAt + gapMs - Date.now());
    refreshTimer = setTimeout(() => { refreshTimer = null; refresh(); }, wait);
  }

  function readerSelects() {
    const selection = getSelection();
    return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
  }

  async function refresh() {
    if (asking) { againAfter = true; return; }
    if (readerSelects()) { refreshSoon(REFRESH_GAP_MS * 2); refreshedAt = Date.now(); return; }
    asking = true;
    refreshedAt = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.status === 401 || new URL(answer.url).pathname === "/login") return signedOut();
      if (answer.ok) take(await answer.text());
    } catch {
      if (source !== null && !wasLost) disconnected();
    } finally {
      asking = false;
      if (againAfter) { againAfter = false; refreshSoon(REFRESH_GAP_MS); }
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
    if (fresh === null || readerSelects()) return;
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
    document.dispatchEvent(new CustomEvent("koala:refreshed"));
  }

  function say(text) { announcer.textContent = text; }

  // --------------------------------------------------------------------------------------------- begin

  window.koalaRefresh = () => refreshSoon(0);
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else connect(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  setInterval(() => {
    const everyMs = Number(main.dataset.refreshS) * 1000;
    if (everyMs > 0 && source !== null && !wasLost && Date.now() - refreshedAt >= everyMs) refreshSoon(0);
  }, 1000);
  show("off", "connecting");
  connect();
})();
