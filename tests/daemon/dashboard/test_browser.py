"""The dashboard in a real browser: it changes in place, works by keyboard and on a phone, says when it is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from koala.daemon.service.principal import owner
from koala.model.api import ElementCountsInfo, Scope
from tests.support.grid_forms import component, job, places
from tests.support.page_watching import Watched, watched
from tests.support.painted_grid import PaintedService, Served, busy_grid, served

# Of each kind one: lists, jobs in all conditions, an array, sites, the network, words, and what is not there.
PAGES = (
    "/",
    "/jobs",
    *(f"/jobs/{number}" for number in (3, 4, 5, 6, 7, 8, 9, 10, 11, 40)),
    "/sites/delft",
    "/sites/vrije",
    "/network",
    "/words",
)
NOT_THERE = "/nosuch"
PHONE_WIDTH = 360
WIDTHS = (PHONE_WIDTH, 390, 1440)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
ALL = (Scope.READ, Scope.SUBMIT, Scope.OPERATE)

CONTRAST = """() => {
  const lum = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.nodeValue.trim() || !element.checkVisibility()) continue;
    if (element.closest("svg, noscript")) continue;
    const [one, two] = [lum(colour(getComputedStyle(element).color)), lum(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) bad.push(`${element.className || element.tagName} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


# What is wider than the page, or is cut off by a box that scrolls from side to side; output of programs may be.
CUT = """() => {
  const wide = document.documentElement.scrollWidth;
  const found = wide > innerWidth ? [`the page: ${wide}`] : [];
  for (const each of document.querySelectorAll("main *")) {
    const sideways = ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
    if (!sideways || each.tagName === "PRE" || !each.checkVisibility()) continue;
    if (each.scrollWidth > each.clientWidth) found.push(`${each.className}: ${each.scrollWidth}`);
  }
  return found;
}"""


@dataclass(frozen=True)
class Look:
    """What there is to say of a page that was opened: how many headings it has, what has too little contrast in the
    light and in the dark, and what is cut off, by theme and width."""

    headings: int
    too_faint: dict[str, list[str]]
    cut: dict[tuple[str, int], list[str]]


@pytest.fixture
def watching(browser: Browser, server: Served) -> Iterator[Watched]:
    """An operator who is signed in and sees no page yet."""
    with watched(browser) as seen:
        seen.enter(server.url, server.token(*ALL))
        yield seen


@pytest.fixture
def overview(server: Served, watching: Watched) -> Watched:
    """An operator who is signed in and sees the overview."""
    watching.open(f"{server.url}/")
    return watching


@pytest.fixture(scope="module")
def looks(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Look]:
    """All pages by their paths, each opened once. The browser may have complained of none."""
    with served(tmp_path_factory.mktemp("looks"), grid_of_all_kinds) as server, watched(browser) as seen:
        seen.page.goto(f"{server.url}/login")
        found = {"/login": look_at(seen)}
        seen.sign_in(server.url, server.token(*ALL))
        for path in PAGES:
            seen.open(server.url + path)
            found[path] = look_at(seen)
        seen.page.goto(server.url + NOT_THERE)
        found[NOT_THERE] = look_at(seen)
        # A browser notes that it found no page; that is what was to be seen here.
        seen.complaints[:] = [each for each in seen.complaints if "status of 404" not in each]
    return found


def grid_of_all_kinds() -> PaintedService:
    """The busy grid with an array under way."""
    service = busy_grid()
    counts = ElementCountsInfo(indices="0-199%20", size=200, waiting=178, running=20, done=1, failed=1)
    array = job(40, "unfolding", name="sweep", elements=counts, standing="running")
    elements = [
        job(41 + n, "running", name=f"sweep[{n}]", array=40, array_index=n, places=places(("leiden", 2)))
        for n in range(22)
    ]
    service.painted.update({each.id: each for each in (array, *elements)})
    return service


def look_at(seen: Watched) -> Look:
    page = seen.page
    too_faint: dict[str, list[str]] = {}
    cut: dict[tuple[str, int], list[str]] = {}
    headings = page.evaluate("document.querySelectorAll('h1').length")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        too_faint[scheme] = page.evaluate(CONTRAST)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 740})
            cut[scheme, width] = page.evaluate(CUT)
        page.set_viewport_size({"width": 1280, "height": 720})
    return Look(headings, too_faint, cut)


def test_all_pages_are_shown_without_a_complaint_of_the_browser(looks: dict[str, Look]) -> None:
    assert {path: look.headings for path, look in looks.items()} == dict.fromkeys(("/login", *PAGES, NOT_THERE), 1)


def test_a_wrong_token_is_refused_with_words(browser: Browser, server: Served) -> None:
    with watched(browser) as seen:
        seen.page.goto(f"{server.url}/login")
        seen.page.get_by_label("Token or one-time code").fill("koala_wrong")
        seen.page.keyboard.press("Enter")
        expect(seen.page.locator("#problem")).to_contain_text("is not valid")


def test_the_link_of_a_login_signs_in_once_and_its_code_leaves_the_address(browser: Browser, server: Served) -> None:
    link = f"{server.url}/login#code={server.tokens.make_code(owner('root'))[0]}"
    with watched(browser) as seen:
        asked: list[str] = []
        seen.page.on("request", lambda request: asked.append(request.url))
        seen.page.goto(link)
        seen.live()
        assert "code" not in seen.page.url
        assert not [url for url in asked[1:] if "code" in url]
    with watched(browser) as seen:
        seen.page.goto(link)
        expect(seen.page.locator("#problem")).to_contain_text("is not valid")


def test_a_link_with_a_token_signs_nobody_in(browser: Browser, server: Served) -> None:
    with watched(browser) as seen:
        seen.page.goto(f"{server.url}/login#code={server.token(*ALL)}")
        expect(seen.page.locator("#problem")).to_contain_text("is not valid")


def test_signing_out_ends_the_session(server: Served, overview: Watched) -> None:
    overview.page.get_by_role("button", name="Sign out").click()
    expect(overview.page).to_have_url(f"{server.url}/login")
    overview.page.goto(f"{server.url}/jobs")
    expect(overview.page).to_have_url(f"{server.url}/login")


def test_a_new_job_appears_and_moves_through_its_states_in_place(server: Served, overview: Watched) -> None:
    overview.mark()
    server.paint(lambda service: service.paint_job(job(20, name="newcomer", since=service.picture.now)))
    mine = overview.page.locator('li[data-job="20"]')
    expect(mine).to_contain_text("newcomer")
    for state in ("placed", "starting", "running"):
        moved = job(20, state, name="newcomer")
        server.paint(partial(PaintedService.paint_job, painted=moved))
        expect(mine.locator(".badge")).to_have_text(state)
        expect(overview.page.locator("#announcer")).to_contain_text(f"Job 20 is {state}.")
    server.paint(lambda service: service.paint_job(job(20, "done", ended_at=service.picture.now)))
    expect(mine).to_have_count(0)
    assert overview.is_marked()


def test_what_the_reader_does_survives_a_change(server: Served, overview: Watched) -> None:
    page = overview.page
    overview.mark()
    page.locator("details[data-key=links] summary").click()
    page.locator('li[data-job="10"] a').focus()
    page.evaluate("scrollTo(0, 300)")
    server.paint(lambda service: service.paint_site("leiden", drained=True))
    expect(page.locator('[data-key="site-leiden"] .badge')).to_have_text("drained")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/jobs/10"
    assert page.evaluate("scrollY") == 300
    assert page.locator("details[data-key=links]").get_attribute("open") is not None
    assert overview.is_marked()


def test_nothing_changes_under_a_selection_until_it_is_let_go(server: Served, overview: Watched) -> None:
    page = overview.page
    page.evaluate("getSelection().selectAllChildren(document.querySelector('[data-key=site-leiden] .site-facts'))")
    chosen = page.evaluate("getSelection().toString()")
    server.paint(lambda service: service.paint_site("leiden", ours=16, others=0, idle=0))
    with page.expect_event("console", predicate=lambda message: message.text == "later"):
        page.evaluate("setTimeout(() => console.log('later'), 3500)")
    assert page.evaluate("getSelection().toString()") == chosen
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("[data-key=site-leiden] .site-facts")).to_contain_text("16 ours")


def test_an_operator_drains_and_resumes_a_site(server: Served, overview: Watched) -> None:
    page = overview.page
    page.get_by_role("link", name="leiden", exact=True).first.click()
    page.get_by_text("Drain…").click()
    page.get_by_label("Why?").fill("disk change")
    page.get_by_role("button", name="Drain leiden").click()
    expect(page.get_by_role("status")).to_contain_text("nothing new goes there")
    expect(page.locator(".page-head .badge")).to_have_text("drained")
    expect(page.locator(".meaning")).to_contain_text("drained by ada: disk change")
    page.get_by_text("Resume…").click()
    page.get_by_role("button", name="Use leiden again").click()
    expect(page.locator(".page-head .badge")).to_have_text("usable")
    assert server.service.did == [("drain", "leiden"), ("resume", "leiden")]
    assert server.service.reasons == ["disk change", ""]


def test_a_job_is_cancelled_only_after_a_second_click(server: Served, watching: Watched) -> None:
    page = watching.page
    watching.open(f"{server.url}/jobs/10")
    page.get_by_text("Cancel…").click()
    assert server.service.did == []
    page.get_by_role("button", name="Yes, cancel job 10").click()
    expect(page.locator(".page-head .badge")).to_have_text("cancelled")
    assert server.service.did == [("cancel", "10")]


def test_everything_can_be_done_without_javascript(browser: Browser, server: Served) -> None:
    with watched(browser, java_script_enabled=False) as seen:
        page = seen.page
        page.goto(f"{server.url}/login")
        page.get_by_label("Token or one-time code").fill(server.token(*ALL))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="das")).to_be_visible()
        page.goto(f"{server.url}/sites/delft")
        page.get_by_text("Drain…").click()
        page.get_by_role("button", name="Drain delft").click()
        expect(page.locator(".page-head .badge")).to_have_text("drained")
        page.goto(f"{server.url}/jobs/10")
        page.get_by_text("Cancel…").click()
        page.get_by_role("button", name="Yes, cancel job 10").click()
        expect(page.locator(".page-head .badge")).to_have_text("cancelled")


def test_output_is_followed_as_it_is_written(server: Served, watching: Watched) -> None:
    page = watching.page
    watching.open(f"{server.url}/jobs/7")
    output = page.locator("pre.output")
    expect(output).to_contain_text("step 59 of 100")

    def write(text: bytes) -> None:
        server.paint(
            lambda service: service.outputs.update({(7, 0, "stdout"): service.outputs[(7, 0, "stdout")] + text})
        )

    write(b"step 60: <i>done</i>\n")
    expect(output).to_contain_text("step 60: <i>done</i>")
    assert page.evaluate(
        "(e => e.scrollHeight - e.scrollTop - e.clientHeight < 2)(document.querySelector('.output'))"
    )
    output.evaluate("element => { element.scrollTop = 0; }")
    write(b"step 61\n")
    expect(output).to_contain_text("step 61")
    assert output.evaluate("element => element.scrollTop") == 0, "a reader who scrolled up is left alone"
    server.paint(lambda service: service.complete.add(7))
    expect(page.locator("[data-output-note]")).to_have_text("End of output.")


def test_the_theme_follows_the_system_until_the_reader_chooses(browser: Browser, server: Served) -> None:
    def brightness(seen: Watched) -> int:
        background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", background)[:3])

    with watched(browser, color_scheme="dark") as seen:
        seen.enter(server.url, server.token(*ALL))
        seen.open(f"{server.url}/")
        assert brightness(seen) < 150
        seen.page.get_by_role("button", name="Change between light and dark").click()
        assert brightness(seen) > 600
        seen.page.goto(f"{server.url}/jobs")
        assert brightness(seen) > 600, "the choice lasts"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_word_has_enough_contrast(looks: dict[str, Look], scheme: str) -> None:
    assert {path: look.too_faint[scheme] for path, look in looks.items() if look.too_faint[scheme]} == {}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_page_is_wider_than_its_window_and_nothing_on_it_is_cut_off(
    looks: dict[str, Look], scheme: str, width: int
) -> None:
    assert {path: look.cut[scheme, width] for path, look in looks.items() if look.cut[scheme, width]} == {}


def test_the_keyboard_reaches_everything(server: Served, overview: Watched) -> None:
    page = overview.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{server.url}/jobs")
    page.get_by_label("Owner").fill("g")
    page.keyboard.press("o")
    assert page.url == f"{server.url}/jobs", "what is typed is no shortcut"
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(f"{server.url}/")


def test_nothing_moves_for_those_who_want_less_motion(overview: Watched) -> None:
    arrow = overview.page.locator(".network .arrow").first
    moves = "element => getComputedStyle(element).animationName"
    overview.page.emulate_media(reduced_motion="no-preference")
    assert arrow.evaluate(moves) == "flow"
    overview.page.emulate_media(reduced_motion="reduce")
    assert arrow.evaluate(moves) == "none"


def test_a_lost_connection_is_told_and_found_again(server: Served, overview: Watched) -> None:
    page = overview.page
    overview.mark()
    server.close()
    expect(page.locator("#lost")).to_contain_text("The connection to the daemon is lost")
    server.open()
    overview.live()
    expect(page.locator("#lost")).to_be_hidden()
    ran = [component(claimed_at=0.0)]
    server.paint(lambda service: service.paint_job(job(30, "running", name="afterwards", components=ran)))
    expect(page.locator('li[data-job="30"]')).to_contain_text("afterwards")
    assert overview.is_marked()
    # A browser notes every request that found nobody; that is what was to be seen here.
    overview.complaints[:] = [each for each in overview.complaints if "Failed to load resource: net::ERR" not in each]


def test_a_session_that_has_ended_is_told_with_the_way_back(server: Served, overview: Watched) -> None:
    page = overview.page
    server.revoke_all()
    server.paint(lambda service: service.happen("something"))
    expect(page.locator("#lost")).to_contain_text("You are signed out")
    page.get_by_role("link", name="Sign in again").click()
    expect(page).to_have_url(f"{server.url}/login")
    overview.complaints[:] = [each for each in overview.complaints if "status of 401" not in each]


def test_what_is_asked_before_a_site_is_declared_lost_can_be_read_whole(server: Served, watching: Watched) -> None:
    server.service.paint_site("vrije", silent_since=1.0, jobs_to_restart=[4, 7, 9])
    watching.open(f"{server.url}/sites/vrije")
    watching.page.locator("details[data-key=lost] summary").click()
    for width, height in ((1280, 800), (390, 844)):
        watching.page.set_viewport_size({"width": width, "height": height})
        box = watching.page.locator("details[data-key=lost] form").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] < height / 2
