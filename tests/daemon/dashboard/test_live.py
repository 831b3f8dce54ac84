"""The dashboard of a real daemon: ``koala up`` in a process, real sites, real jobs, and a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from koala.model.api import Scope
from tests.support.live_daemon import Daemon, running_daemon
from tests.support.page_watching import Watched, watched
from tests.support.ports import free_port

# Component 0 speaks, and both wait for the word to end: a file that the test makes.
JOB = """\
name: "<b>two sites</b>"
application:
  script: |
    echo "component $KOALA_COMPONENT speaks"
    while [ ! -e {word} ]; do sleep 0.3; done
    echo "component $KOALA_COMPONENT has heard" | tee made
outputs: [made]
keep_outputs_for: 2d
components:
  - {{processors: 2, site: amsterdam}}
  - {{processors: 3, site: berlin}}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that comes back at the same address. Every test leaves it running, and amsterdam and berlin idle."""
    options = ("--listen", f"127.0.0.1:{free_port()}")
    with running_daemon(tmp_path_factory.mktemp("daemon"), options=options) as started:
        yield started


def url_of(daemon: Daemon) -> str:
    assert daemon.url is not None, "the daemon said no address"
    return daemon.url


def operator(daemon: Daemon) -> str:
    """The secret of a new token that allows everything."""
    return daemon.client.create_token("ada", list(Scope)).secret


def forgive_lost_requests(seen: Watched) -> None:
    """A browser notes every request that was not answered or not allowed; where that is the point it is no fault."""
    forgiven = ("net::ERR", "status of 401", "status of 503")
    seen.complaints[:] = [each for each in seen.complaints if not any(part in each for part in forgiven)]


def test_a_job_is_followed_from_its_submission_to_its_end_in_place(
    daemon: Daemon, browser: Browser, tmp_path: Path
) -> None:
    word = tmp_path / "word"
    with watched(browser) as seen:
        seen.sign_in(url_of(daemon), operator(daemon))
        seen.mark()
        number = daemon.client.submit(JOB.format(word=word), source="job.yaml").job.id
        mine = seen.page.locator(f'li[data-job="{number}"]')
        expect(mine.locator(".badge")).to_have_text("running")
        expect(mine).to_contain_text("<b>two sites</b>")
        expect(seen.page.locator('[data-key="site-berlin"] .site-facts').first).to_contain_text("3 ours")
        assert seen.is_marked()
        seen.page.goto(f"{url_of(daemon)}/jobs/{number}?part=1")
        seen.live()
        seen.mark()
        expect(seen.page.locator("pre.output")).to_contain_text("component 1 speaks")
        word.touch()
        expect(seen.page.locator(".page-head .badge")).to_have_text("done")
        expect(seen.page.locator("pre.output")).to_contain_text("component 1 has heard")
        expect(seen.page.locator("[data-output-note]")).to_have_text("End of output.")
        expect(seen.page.locator('section[aria-labelledby="made-title"]')).to_contain_text("kept until 2")
        expect(seen.page.locator(".story")).to_contain_text("the barrier opened: all components started together")
        assert seen.is_marked()


def test_a_job_that_cannot_be_placed_is_explained_and_cancelled(daemon: Daemon, browser: Browser) -> None:
    text = "application: {script: 'true'}\ncomponents: [{processors: 4, site: cracow}]\n"
    with watched(browser) as seen:
        seen.enter(url_of(daemon), operator(daemon))
        seen.open(f"{url_of(daemon)}/sites/cracow")
        seen.page.get_by_text("Drain…").click()
        seen.page.get_by_label("Why?").fill("disk change")
        seen.page.get_by_role("button", name="Drain cracow").click()
        expect(seen.page.locator(".page-head .badge")).to_have_text("drained")
        expect(seen.page.locator(".meaning")).to_contain_text(": disk change")
        number = daemon.client.submit(text, source="job.yaml").job.id
        seen.page.goto(f"{url_of(daemon)}/")
        expect(seen.page.locator(f'li[data-job="{number}"] .why')).to_contain_text("cracow")
        seen.page.locator(f'li[data-job="{number}"] a').click()
        expect(seen.page.get_by_role("heading", name="Why it waits")).to_be_visible()
        expect(seen.page.locator('[data-key="shortage-cracow"]')).to_contain_text("4")
        expect(seen.page.locator('[data-key="shortage-cracow"]')).to_contain_text(": disk change; resume it")
        seen.page.get_by_text("Cancel…").click()
        seen.page.get_by_role("button", name=f"Yes, cancel job {number}").click()
        expect(seen.page.locator(".page-head .badge")).to_have_text("cancelled")


def test_a_daemon_that_was_killed_is_missed_and_found_again(daemon: Daemon, browser: Browser) -> None:
    secret = operator(daemon)
    with watched(browser) as seen:
        seen.enter(url_of(daemon), secret)
        seen.open(f"{url_of(daemon)}/")
        seen.mark()
        daemon.kill()
        expect(seen.page.locator("#lost")).to_contain_text("The connection to the daemon is lost")
        daemon.start()
        # Sessions do not outlive a daemon, but tokens do.
        expect(seen.page.locator("#lost")).to_contain_text("You are signed out")
        assert seen.is_marked()
        seen.page.get_by_role("link", name="Sign in again").click()
        seen.page.get_by_label("Token or one-time code").fill(secret)
        seen.page.get_by_role("button", name="Sign in").click()
        seen.live()
        expect(seen.page.locator("#lost")).to_be_hidden()
        forgive_lost_requests(seen)


def test_a_link_of_the_command_line_signs_in_once(daemon: Daemon, browser: Browser) -> None:
    link = daemon.client.login().url
    assert link is not None
    with watched(browser) as first:
        first.page.goto(link)
        first.live()
    with watched(browser) as second:
        second.page.goto(link)
        expect(second.page.locator("#problem")).to_contain_text("was used before")
