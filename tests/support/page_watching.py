"""A watched browser page: complaints on its console, and what its content policy blocks, fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

WAIT_MS = 120_000
expect.set_options(timeout=WAIT_MS)
# Tests that a page follows the daemon's events within a time. ``expect`` could do so too, but sends its whole library
# to every new page first, which takes as long as the page itself.
FOLLOWS = """(wait_ms) => new Promise((resolve) => {
  const look = () => document.getElementById("connection")?.dataset.connection === "live" && resolve(true);
  new MutationObserver(look).observe(document, {attributes: true, childList: true, subtree: true});
  setTimeout(() => resolve(false), wait_ms);
  look();
})"""


class Watched:
    """A page, and its complaints."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._take)

    def _take(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def sign_in(self, url: str, secret: str) -> None:
        """Open the dashboard, get to the login page, paste a token."""
        self.page.goto(f"{url}/")
        expect(self.page).to_have_url(f"{url}/login")
        self.page.get_by_label("Token or one-time code").fill(secret)
        self.page.get_by_role("button", name="Sign in").click()
        self.live()

    def enter(self, url: str, secret: str) -> None:
        """Sign in without using the page, and open no page yet."""
        request = self.page.context.request
        answer = request.post(f"{url}/login", form={"secret": secret}, headers={"Origin": url}, max_redirects=0)
        went = answer.status, answer.headers.get("location")
        assert went == (303, "/"), f"the sign-in failed: {went}"

    def open(self, url: str) -> None:
        """Go to a page of the dashboard, and wait until it follows the daemon's events."""
        self.page.goto(url)
        assert self.page.evaluate(FOLLOWS, WAIT_MS), f"{url} does not follow the daemon's events"

    def live(self) -> None:
        """Wait until the page follows the daemon's events."""
        expect(self.page.locator("#connection")).to_have_attribute("data-connection", "live")

    def mark(self) -> None:
        """Mark this document, to distinguish a change in place from a new page."""
        self.page.evaluate("window.sameDocument = true")

    def is_marked(self) -> bool:
        return bool(self.page.evaluate("window.sameDocument === true"))


@contextmanager
def watched(browser: Browser, **options: Any) -> Iterator[Watched]:
    """Open a fresh page without cookies; there must be no complaints at the end. Motion is off, because nobody sees
    the pictures that it would draw all the time."""
    context = browser.new_context(**{"reduced_motion": "reduce", **options})
    context.set_default_timeout(WAIT_MS)
    try:
        seen = Watched(context.new_page())
        yield seen
        assert seen.complaints == []
    finally:
        context.close()
