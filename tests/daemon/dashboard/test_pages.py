"""The dashboard's pages as text: complete without JavaScript, escaped, bounded, only for those who may see them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from koala.client.client import NO_TLS
from koala.daemon.dashboard.glossary import TERMS
from koala.daemon.dashboard.page_contents import (
    PAGE_JOBS,
    SITE_CHARTS_MAX,
    TAIL_BYTES,
    TIMELINE_ELEMENTS_MAX,
    TIMELINE_JOBS_MAX,
)
from koala.daemon.dashboard.queues import QUEUE_LINES_MAX
from koala.daemon.dashboard.words import moment
from koala.model.api import ElementCountsInfo, ExcludedNode, JobDetail, LicensePool, Output, PlanInfo, Refusal, Scope
from tests.support.grid_forms import NOW, component, job, overview, places, site
from tests.support.painted_grid import PaintedService, Served, served

PAGES = (
    "/",
    "/network",
    "/jobs",
    "/jobs/7",
    "/jobs/10",
    "/jobs/4",
    "/sites/delft",
    "/sites/vrije",
    "/words",
    "/login",
)
ALL = (Scope.READ, Scope.SUBMIT, Scope.OPERATE)
# A moment that is told with its date, also if the tests began before midnight and this one runs after it.
LATER = NOW + 2 * 86_400.0


def caller(server: Served, *scopes: Scope, user: str = "ada") -> httpx.Client:
    """Somebody who shows a token at every call."""
    token = server.token(*(scopes or ALL), user=user)
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=NO_TLS)


@pytest.fixture
def operator(server: Served) -> Iterator[httpx.Client]:
    with caller(server) as client:
        yield client


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A grid that no test changes."""
    with served(tmp_path_factory.mktemp("still")) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(still: Served) -> Iterator[httpx.Client]:
    """Somebody who may do everything and only reads."""
    with caller(still) as client:
        yield client


def text_of(page: str) -> str:
    """What a reader sees of a page, roughly: no tags, single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


@pytest.mark.parametrize("path", [page for page in PAGES if page != "/login"])
def test_a_stranger_is_sent_to_sign_in(still: Served, path: str) -> None:
    answer = httpx.get(still.url + path, verify=NO_TLS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def test_the_page_to_sign_in_says_what_was_wrong(still: Served) -> None:
    assert "is not valid" in httpx.get(f"{still.url}/login?problem=wrong", verify=NO_TLS).text
    assert "Too many wrong tokens" in httpx.get(f"{still.url}/login?problem=many", verify=NO_TLS).text
    assert 'id="problem"' not in httpx.get(f"{still.url}/login?problem=<b>", verify=NO_TLS).text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_inline_script_or_style(reader: httpx.Client, path: str) -> None:
    page = reader.get(path).raise_for_status().text
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    assert re.search(r"<[^>]*\s(style|on[a-z]+)=", page) is None
    assert "<style" not in page


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/7", "/sites/delft"])
def test_a_name_is_never_markup(reader: httpx.Client, path: str) -> None:
    page = reader.get(path).raise_for_status().text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_what_a_program_wrote_is_never_markup(reader: httpx.Client) -> None:
    assert "warning: &lt;b&gt;slow&lt;/b&gt; disk" in reader.get("/jobs/7?stream=stderr").text


def test_the_page_of_a_failed_job_opens_on_the_errors_of_the_component_that_failed(reader: httpx.Client) -> None:
    page = reader.get("/jobs/4").text
    assert "<code>mesh.c:88: cannot open &lt;b&gt;tides&lt;/b&gt;.mesh</code>" in page
    assert "reading tides.mesh" in page
    assert "reading tides.mesh" not in reader.get("/jobs/4?stream=stdout").text
    assert "reading tides.mesh" not in reader.get("/jobs/4?part=1").text


def test_the_page_of_a_job_tells_what_it_used_and_what_was_not_measured(reader: httpx.Client) -> None:
    told = text_of(reader.get("/jobs/4").text)
    assert "320.0 of 800.0 processor seconds (40%), measured for 1 of 2 components" in told
    assert "3 GiB of memory at the peak, of 4 GiB asked for (75%)" in told
    assert "not measured" in told


def test_the_overview_is_complete_without_javascript(reader: httpx.Client) -> None:
    told = text_of(reader.get("/").text)
    for words in (
        "14 ours · 6 others&#39; · 2 idle · 24 in all".replace("&#39;", "'"),
        "vrije does not answer: connection refused; koala site check vrije shows more",
        "no site has 12 idle processors; would help: 8 more idle processors on leiden",
        "100 MB of 1.0 GB",
        "640 Mbit/s",
        "leiden reports 16 processors",
    ):
        assert words in told, words
    assert 'http-equiv="refresh"' in reader.get("/").text


def test_the_network_tells_what_is_believed_and_what_was_measured(reader: httpx.Client) -> None:
    html = reader.get("/network").text
    assert "3 measurements, the newest at the end: 90 Mbit/s, 90 Mbit/s, 42 Mbit/s" in html
    page = text_of(html)
    assert (
        "7 tides delft, vrije 40 Mbit/s 23.4 Mbit/s 23.4 Mbit/s a measurement vrije: it has not reported yet" in page
    )
    assert "42 Mbit/s 12.3 ms" in page
    assert "100 Mbit/s 5 ms" in page
    assert "delft bandwidth 42 Mbit/s median of 5, 7 measured 1.5 Mbit/s 42 Mbit/s a probe" in page
    assert "could not be probed: delft: no route to host" in page


def test_a_waiting_job_is_explained_site_by_site(reader: httpx.Client) -> None:
    told = text_of(reader.get("/jobs/10").text)
    assert "Place 1 of 3 in its queue" in told
    assert "twente 12 0 12 resume the site" in told


def test_plans_tell_when_and_where_jobs_are_expected(server: Served, operator: httpx.Client) -> None:
    server.service.plans[10] = PlanInfo(job=10, expected_at=LATER, expected_sites=["delft", "leiden"])
    server.service.paint_job(job(99, "waiting"))
    expected = f"expected at {moment(LATER)} on delft and leiden"
    assert f"It is {expected} , if nobody comes before" in text_of(operator.get("/jobs/10").text)
    planned = expected.removeprefix("expected at ")
    assert f"Job 10 , which comes before it, has its places planned for {planned}." in text_of(
        operator.get("/jobs/99").text
    )
    assert expected in text_of(operator.get("/").text)


def test_the_page_of_a_site_tells_what_is_held_against_it(server: Served, operator: httpx.Client) -> None:
    why = "failures here of applications that did well elsewhere: exit code 127 of job 3"
    server.service.paint_site("delft", trust="unusable", distrusted=why, accusations=["exit code 127 of job 3"])
    told = text_of(operator.get("/sites/delft").text)
    assert f"trust lost by {why}" in told
    assert "failed here exit code 127 of job 3" in told
    server.service.paint_site("delft", problem=f"delft is not trusted: {why}; it is tried again after a pause")
    told = text_of(operator.get("/sites/delft").text)
    assert told.count(why) == 1


def test_a_job_that_ran_twice_shows_both_runs(reader: httpx.Client) -> None:
    page = reader.get("/jobs/4").text
    assert re.search(r'data-label="run">2<.*data-label="run">1<', page, re.DOTALL)
    assert "run=1#output" in page
    assert "run=2#output" in page


def test_what_a_job_saved_is_told(reader: httpx.Client) -> None:
    assert "0 run 1 delft 1.2 MB" in text_of(reader.get("/jobs/4").text)
    running = text_of(reader.get("/jobs/7").text)
    assert "If it were ended now, 42 s of work would be lost. No run has continued from one yet." in running


def test_the_buttons_are_for_those_who_may_press_them(still: Served) -> None:
    with caller(still, Scope.READ) as reader, caller(still) as operator:
        assert "Drain" not in reader.get("/sites/delft").text
        assert "Drain" in operator.get("/sites/delft").text
        assert "Cancel" not in reader.get("/jobs/10").text
    with caller(still, Scope.READ, Scope.SUBMIT, user="ada") as ada:
        assert "Cancel" in ada.get("/jobs/10").text
        assert "Cancel" not in ada.get("/jobs/7").text, "it is grace's"
        assert "Cancel" not in ada.get("/jobs/3").text, "it has ended"


def test_a_form_that_its_sender_may_not_send_changes_nothing(server: Served) -> None:
    with caller(server, Scope.READ) as reader:
        answer = reader.post("/sites/delft/drain")
    assert answer.status_code == 403
    assert "needs the scope operate" in answer.text
    assert server.service.did == []


@pytest.mark.parametrize("act", ["drain", "resume", "probe"])
def test_a_form_leads_back_to_the_page_of_the_site(server: Served, operator: httpx.Client, act: str) -> None:
    answer = operator.post(f"/sites/delft/{act}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sites/delft?did={act}")
    assert server.service.did == [(act, "delft")]
    assert 'role="status"' in operator.get(answer.headers["location"]).text


@pytest.mark.parametrize(
    "path",
    ["/jobs/99", "/jobs/x", "/jobs/" + "9" * 40, "/sites/nowhere", "/sites/<b>", "/jobs?state=odd", "/static/none.js",
     "/static/..%2Frouter.py", "/jobs/7?part=-1"],
)  # fmt: skip
def test_what_is_not_there_is_told_on_a_page(reader: httpx.Client, path: str) -> None:
    answer = reader.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith(("text/html", "application/json"))
    assert "<b>" not in answer.text


@pytest.mark.parametrize("path", ["/nosuch", "/jobs/7/nosuch", "/jobs/7/cancel", "/<b>"])
def test_an_address_without_a_page_is_told_on_a_page_to_a_browser_and_as_json_to_a_program(
    reader: httpx.Client, path: str
) -> None:
    page = reader.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.status_code in (404, 405)
    assert page.headers["content-type"].startswith("text/html")
    assert "To the overview" in page.text
    assert "openapi" not in page.text or page.status_code == 405
    assert "<b>" not in page.text
    told = reader.get(path)
    assert told.status_code == page.status_code
    assert told.json()["error"]["code"] in ("not_found", "method_not_allowed")
    of_api = reader.get("/v1/nosuch", headers={"Accept": "text/html"})
    assert of_api.json()["error"]["code"] == "not_found"


def test_a_stranger_learns_of_no_page_on_a_page_too(still: Served) -> None:
    answer = httpx.get(f"{still.url}/nosuch", headers={"Accept": "text/html"}, verify=NO_TLS)
    assert answer.status_code == 404
    assert "There is no page at /nosuch." in answer.text


def test_a_reason_of_a_form_goes_with_the_act_and_is_shown_without_markup(
    server: Served, operator: httpx.Client
) -> None:
    operator.post("/sites/delft/drain", data={"reason": "a <b>disk</b>"})
    operator.post("/jobs/10/cancel", data={"reason": "wrong input"})
    assert server.service.reasons == ["a <b>disk</b>", "wrong input"]
    for path in ("/", "/sites/delft"):
        assert "drained by ada: a &lt;b&gt;disk&lt;/b&gt;" in operator.get(path).text
    answer = operator.post("/sites/leiden/drain", content=b"reason=%ff&and=more&and=more")
    assert (answer.status_code, "the form cannot be read" in answer.text) == (422, True)
    assert server.service.did == [("drain", "delft"), ("cancel", "10")]


def test_nodes_that_programs_are_kept_off_are_on_the_pages_of_their_site(
    server: Served, operator: httpx.Client
) -> None:
    reason = "exit code 127 (job 3), and it did well elsewhere"
    excluded = ExcludedNode(node="n1", program="<b>solve", owner="ann", reason=reason, until=NOW + 600, closes=True)
    server.service.paint_site("delft", excluded=[excluded])
    assert "1 node excluded for 1 program: no place for them while" in operator.get("/").text
    page = operator.get("/sites/delft").text
    assert "<strong>n1</strong> for &lt;b&gt;solve of ann, for " in page
    assert f"{reason}; no node is left here for it" in page


def test_the_page_of_a_site_shows_its_pools_of_licences(server: Served, operator: httpx.Client) -> None:
    own = LicensePool(name="<b>ansys", total=4, left=1, jobs=[7])
    server.service.paint_site("delft", licenses=[own, LicensePool(name="matlab", total=2, left=2, shared=True)])
    page = operator.get("/sites/delft").text
    assert '&lt;b&gt;ansys licences left</dt><dd>1 of 4; held by <a href="/jobs/7">7</a></dd>' in page
    assert "matlab licences left for all sites</dt><dd>2 of 2</dd>" in page


def test_an_act_that_no_site_knows_is_not_found(server: Served, operator: httpx.Client) -> None:
    assert operator.post("/sites/delft/explode").status_code == 404
    assert operator.post("/jobs/10/explode").status_code == 404
    assert server.service.did == []


def test_a_daemon_that_cannot_work_says_why_on_every_page(server: Served, operator: httpx.Client) -> None:
    server.paint(lambda service: setattr(service, "why_not", "the disk is full"))
    for path in ("/", "/jobs", "/jobs/7", "/sites/delft"):
        assert "the disk is full" in operator.get(path).text


def test_jobs_are_listed_by_state_and_owner_a_page_at_a_time(server: Served, operator: httpx.Client) -> None:
    def shown(path: str) -> list[int]:
        return [int(number) for number in re.findall(r'data-job="(\d+)"', operator.get(path).text)]

    assert shown("/jobs?state=failed") == [4]
    assert shown("/jobs?owner=grace") == [7, 4]
    assert shown("/jobs?state=live") == [12, 11, 10, 9, 8, 7, 6]
    assert shown("/jobs?name=bro*") == shown("/jobs?name=broken") == [4]
    today = moment(NOW - 1_200)[:10]
    assert 4 in shown(f"/jobs?since={today}&until={today}")
    assert shown("/jobs?until=2001-01-01&name=broken") == shown("/jobs?since=2999-01-01") == []
    assert len(shown("/jobs?since=soon&until=")) > 9
    server.paint(lambda service: service.painted.update({n: job(n) for n in range(100, 100 + 2 * PAGE_JOBS)}))
    first = operator.get("/jobs").text
    assert len(re.findall(r"data-job=", first)) == PAGE_JOBS
    older = re.search(r'href="(/jobs\?[^"]*cursor=[^"]*)"', first)
    assert older is not None
    assert shown(older[1].replace("&amp;", "&"))[0] == 100 + PAGE_JOBS - 1


def test_the_page_of_an_array_lists_its_elements_and_those_that_ended_are_jobs_over_time(
    server: Served, operator: httpx.Client
) -> None:
    counts = ElementCountsInfo(indices="0-4", size=5, waiting=2, running=1, done=2, failed=0, cancelled=0)
    array = job(20, "unfolding", name="sweep", elements=counts, standing="running")
    elements = [
        job(
            21,
            "done",
            array=20,
            array_index=0,
            started_at=NOW - 90,
            ended_at=NOW - 60,
            components=[component(claimed_at=NOW - 95, released_at=NOW - 90, ended_at=NOW - 60, outcome="done")],
        ),
        job(22, "running", array=20, array_index=1, started_at=NOW - 50, places=places(("delft", 2))),
        job(23, "waiting", array=20, array_index=2, place_in_line=4),
    ]
    server.paint(lambda service: service.painted.update({each.id: each for each in (array, *elements)}))
    page = operator.get("/jobs/20").text
    assert re.findall(r'data-key="element-(\d+)"', page) == ["23", "22", "21"]
    assert "number 4 in its queue" in page
    assert "2 on delft" in page
    assert "21 job-21" in text_of(operator.get("/sites/delft").text)
    overview_page = text_of(operator.get("/").text)
    assert "20 sweep 2 of 5 ended" in overview_page
    assert "21 job-21" not in overview_page
    assert 'id="elements"' not in operator.get("/jobs/22").text


def test_the_elements_of_an_array_leave_room_for_other_jobs_that_ended(
    server: Served, operator: httpx.Client
) -> None:
    def ended(number: int, at: float, where: str = "delft", **fields: Any) -> JobDetail:
        runs = [component(0, where, claimed_at=at - 30, released_at=at - 20, ended_at=at, outcome="done")]
        return job(number, "done", started_at=at - 20, ended_at=at, components=runs, **fields)

    counts = ElementCountsInfo(indices="0-59", size=60, done=60)
    array = job(100, "done", name="sweep", elements=counts, ended_at=NOW - 1)
    elements = [ended(101 + n, NOW - 1, name=f"sweep[{n}]", array=100, array_index=n) for n in range(60)]
    jobs = (array, *elements, ended(90, NOW - 300), ended(91, NOW - 200, "leiden"))
    server.paint(lambda service: service.painted.update({each.id: each for each in jobs}))
    page = text_of(operator.get("/sites/delft").text)
    assert "90 job-90" in page
    assert page.count("sweep [") == TIMELINE_ELEMENTS_MAX
    assert "160 sweep [59]" in page
    page = text_of(operator.get("/").text)
    assert "90 job-90" in page
    assert page.count("100 sweep 60 of 60 ended") == 1
    assert "sweep [" not in page
    page = text_of(operator.get("/jobs/100").text)
    assert "0-59: 60 done" in page
    assert "0 waiting" not in page
    assert "its turn has come" not in page


def sweeping() -> PaintedService:
    """An array of 200 elements under way: 120 ended, 60 run, 20 wait; and one that has just been submitted."""
    counts = ElementCountsInfo(indices="0-199", size=200, waiting=20, running=60, done=120)
    array = job(100, "unfolding", name="sweep", elements=counts, standing="running", processors=1)
    states = ["done"] * 120 + ["running"] * 60 + ["waiting"] * 20
    elements = [
        job(101 + n, state, name=f"sweep[{n}]", array=100, array_index=n, processors=1, places=places(("delft", 1)))
        for n, state in enumerate(states)
    ]
    others = [job(7, "running", name="tides", places=places(("leiden", 4))), job(8, "waiting", name="urgent")]
    return PaintedService(overview([site("delft", 64, ours=60), site("leiden")]), [*others, array, *elements])


def test_the_overview_has_an_array_as_one_line_of_a_list_and_one_row_over_time(tmp_path: Path) -> None:
    with served(tmp_path, sweeping) as server, caller(server) as operator:
        page = operator.get("/").raise_for_status().text
    assert re.findall(r'<li data-key="job-(\d+)"', page) == ["8", "100", "7", "100"]
    assert re.findall(r'class="timeline-row" data-key="job-(\d+)"', page) == ["100", "8", "7"]
    told = text_of(page)
    assert "60 elements here: 60 on delft 200 elements: 20 waiting, 60 running, 120 done" in told
    assert "100 sweep 120 of 200 ended running" in told
    assert "sweep[" not in told


def test_words_that_pages_underline_are_explained_on_a_page(reader: httpx.Client) -> None:
    words = reader.get("/words").raise_for_status().text
    used = {name for path in PAGES for name in re.findall(r'href="/words#([^"]+)"', reader.get(path).text)}
    assert used >= {"ours", "earmark", "policy", "fixed-request"}
    assert used <= set(re.findall(r'<div id="([^"]+)">', words))
    for state in ("claiming", "quarantined", "misconfigured"):
        assert f">{state}</span>" in words


def test_the_words_of_the_pages_are_those_of_the_glossary() -> None:
    glossary = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert [word for word in TERMS if f"| **{word.replace('-', ' ')}" not in glossary] == []


def test_a_site_is_told_in_plain_words(server: Served, operator: httpx.Client) -> None:
    server.service.paint_site("delft", man="west", wan="europe", gained_processor_s=87.0, wasted_processor_s=1.0)
    alone = text_of(operator.get("/sites/delft").text)
    assert "left to others until claimed 87 processor seconds" in alone
    assert "held idle before starts 1 processor second " in alone
    assert "near it" not in alone
    server.service.paint_site("leiden", man="west", wan="europe")
    assert "near it leiden" in text_of(operator.get("/sites/delft").text)


def test_a_job_is_told_in_plain_words(server: Served, operator: httpx.Client) -> None:
    server.paint(lambda service: service.paint_job(job(41, kind="fixed", gained_processor_s=36_000.0)))
    told = text_of(operator.get("/jobs/41").text)
    assert "sites named by the job" in told
    assert "left to others until claimed 10.0 processor hours" in told


def test_a_job_that_is_held_until_its_time_is_listed_with_it(server: Served, operator: httpx.Client) -> None:
    held = job(30, "held", reason="it waits for its time (begin_at)", begins_at=LATER)
    counts = ElementCountsInfo(indices="0-4", size=5, running=2, done=2, failed=1)
    array = job(40, "unfolding", elements=counts, standing="running")
    server.paint(lambda service: service.painted.update({30: held, 40: array}))
    page = text_of(operator.get("/jobs").text)
    assert f"it waits for its time (begin_at); its time is {moment(LATER)}" in page
    assert "5 elements: 2 running, 2 done, 1 failed" in page


def test_the_list_of_jobs_says_why_and_until_when_each_waits(server: Served, operator: httpx.Client) -> None:
    plan = PlanInfo(job=10, expected_at=NOW + 600, expected_sites=["delft", "leiden"])
    server.paint(lambda service: service.plans.update({10: plan}))
    row = re.search(r'<tr data-key="job-10".*?</tr>', operator.get("/jobs").text, re.DOTALL)
    assert row is not None
    assert "on delft and leiden; no site has" in row[0]


def test_an_array_is_listed_and_shown_with_why_its_next_element_waits(server: Served, operator: httpx.Client) -> None:
    counts = ElementCountsInfo(indices="0-4", size=5, waiting=3, done=2)
    server.paint(lambda service: service.painted.update({40: job(40, "unfolding", elements=counts)}))
    row = re.search(r'<tr data-key="job-40".*?</tr>', operator.get("/jobs").text, re.DOTALL)
    assert row is not None
    assert "5 elements: 3 waiting, 2 done; no site has" in row[0]
    page = operator.get("/jobs/40").text
    assert 'Its next element is <a href="/jobs/41">job 41</a>' in page
    assert "Why it waits" in page


def test_lists_and_the_page_of_a_job_that_can_never_fit_say_so(
    server: Served, operator: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Refusal(policy="WF", reason="no node is large enough", cure="ask for less", permanent=True)
    monkeypatch.setattr(PaintedService, "_refusal", lambda *_: refused)
    for page in ("/jobs", "/"):
        text = text_of(operator.get(page).text)
        assert "can never fit: no node is large enough; would help: ask for less" in text
    assert "It can never fit: no site has what it asks for" in text_of(operator.get("/jobs/10").text)


def test_a_static_file_may_be_kept_for_ever_under_its_mark_alone(reader: httpx.Client) -> None:
    page = reader.get("/").text
    marked = re.search(r'href="(/static/dashboard.css\?v=[0-9a-f]+)"', page)
    assert marked is not None
    assert "immutable" in reader.get(marked[1]).headers["cache-control"]
    assert reader.get("/static/dashboard.css?v=0").headers["cache-control"] == "no-cache"
    assert reader.get("/static/live.js").headers["content-type"].startswith("text/javascript")


# -------------------------------------------------------------------------------------- empty and large


def test_an_empty_grid_has_a_page(tmp_path: Path) -> None:
    with served(tmp_path, lambda: PaintedService(overview([]), [])) as server, caller(server) as operator:
        told = text_of(operator.get("/").raise_for_status().text)
        assert "This grid has no sites" in told
        assert "no jobs yet" in told
        assert "No job has been submitted yet" in text_of(operator.get("/jobs").text)


def many() -> PaintedService:
    sites = [site(f"site-{number}", 1_000) for number in range(50)]
    running = job(1, "running", name="the one that runs", components=[component(claimed_at=NOW - 60)])
    return PaintedService(overview(sites), [running, *(job(number) for number in range(2, 1_002))])


def test_fifty_sites_and_a_thousand_waiting_jobs_stay_one_page(tmp_path: Path) -> None:
    with served(tmp_path, many) as server, caller(server) as operator:
        page = operator.get("/").raise_for_status().text
    assert len(re.findall('class="panel site"', page)) == 50
    assert len(re.findall('class="chart"', page)) == 0, f"charts are for {SITE_CHARTS_MAX} sites at most"
    assert len(re.findall(r'<li data-key="job-\d+"', page)) == QUEUE_LINES_MAX + 1
    rows = re.findall(r'class="timeline-row" data-key="job-(\d+)"', page)
    assert len(rows) == TIMELINE_JOBS_MAX
    assert "1" in rows, "the job that runs is shown before those that wait"
    assert f"{1_000 - QUEUE_LINES_MAX} more" in page
    assert len(page) < 400_000


class Counting(PaintedService):
    """Counts the reads of outputs."""

    reads = 0

    async def output(self, *arguments: object, **named: object) -> Output:
        self.reads += 1
        return await super().output(*arguments, **named)  # type: ignore[arg-type]


def long_output() -> PaintedService:
    ran = [component(claimed_at=NOW - 60, released_at=NOW - 50)]
    service = Counting(overview([site()]), [job(1, "running", components=ran)])
    service.outputs[(1, 0, "stdout")] = b"".join(b"line %09d\n" % number for number in range(1_000_000))
    return service


def test_of_a_long_output_the_end_is_shown_after_few_reads(tmp_path: Path) -> None:
    with served(tmp_path, long_output) as server, caller(server) as operator:
        page = operator.get("/jobs/1").raise_for_status().text
        assert isinstance(server.service, Counting)
        assert server.service.reads < 50
    assert "line 000999999\n" in page
    assert "line 000000000\n" not in page
    assert page.count("line 0") <= 2 * TAIL_BYTES / 15
    assert 'data-offset="15000000"' in page
    assert "are not shown" in page


def test_a_component_shows_its_run_also_when_its_barrier_never_opened(server: Served, operator: httpx.Client) -> None:
    """Two openings may have the same time, and a claim that failed before one belongs to the run that it was for."""
    server.service.painted[90] = job(
        90,
        "running",
        components=[
            component(0, claimed_at=NOW - 50, released_at=NOW - 40, ended_at=NOW - 40, run=1),
            component(1, claimed_at=NOW - 49, released_at=NOW - 40, run=2),
            component(2, claimed_at=NOW - 48, ended_at=NOW - 30, run=3),
        ],
    )
    page = operator.get("/jobs/90").text
    assert sorted(re.findall(r'data-label="run">([^<]*)<', page)) == ["1", "2", "3"]
