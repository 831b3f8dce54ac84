"""A site loses its trust by what several users see of it, or by nobody's jobs: one user's alone take it from nobody
whose components start there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koala.core import JobState
from koala.core.state.site_belief import SiteBelief, Trust
from koala.daemon.service.answers import site_problem
from koala.model.errors import Fault
from koala.model.messages import JobSubmitted, Outcome, SiteSilent
from koala.model.request import Application, Component, Request
from tests.support.core_driver import CoreDriver, ask, part
from tests.support.core_records import records_of, scheduler_of

ERRORS = 3


def _driver(sites: dict[str, int] | None = None, **parameters: Any) -> CoreDriver:
    return CoreDriver(sites or {"a": 100}, scan_interval_s=0.0, error_threshold=ERRORS, **parameters)


def _a(driver: CoreDriver) -> SiteBelief:
    return driver.ledger.sites.sites[0]


class Users:
    """Jobs of users, one after the other."""

    def __init__(self, driver: CoreDriver) -> None:
        self.driver = driver
        self.last = 0

    def submit(self, user: str, request: Request | None = None) -> list[str]:
        """A job of the user; its tokens, if it has places."""
        self.last += 1
        request = request or ask(part(1, "a"), claiming_tries_max=1)
        self.driver.send(JobSubmitted(at=self.driver.now, job=self.last, request=request, owner=user))
        return self.driver.tokens(self.last)

    def start(self, user: str) -> bool:
        """A component of the user reaches the barrier, and runs on; whether it had a place."""
        tokens = self.submit(user)
        self.driver.ready(*tokens)
        return bool(tokens)

    def refused(self, user: str) -> None:
        """The site fails to take a component of the user."""
        tokens = self.submit(user)
        self.driver.end(*tokens, outcome=Outcome.REFUSED, fault=Fault.SITE, reason="no such account")
        self.driver.cancel(self.last)

    def breaks(self, user: str) -> None:
        """One breaks while it runs."""
        tokens = self.submit(user)
        self.driver.ready(*tokens)
        self.driver.end(*tokens, outcome=Outcome.SITE_FAILED, reason="its directory is gone")
        self.driver.cancel(self.last)


def test_a_user_whose_jobs_all_fail_takes_no_site_from_another_whose_components_start_there() -> None:
    users = Users(_driver())
    assert users.start("bob")
    for _ in range(5 * ERRORS):
        users.refused("ann")
    assert _a(users.driver).trust is Trust.USABLE
    assert users.start("bob")
    problem = site_problem(_a(users.driver), None, sees_all=True)
    assert problem == (
        "jobs of one user fail at a, the last: no such account; other users' jobs start there, so it stays in use"
    )


def test_a_site_at_which_nobody_elses_components_start_loses_its_trust_by_one_users_jobs() -> None:
    users = Users(_driver())
    users.start("ann")
    for _ in range(ERRORS):
        assert _a(users.driver).trust is Trust.USABLE
        users.refused("ann")
    assert _a(users.driver).trust is Trust.UNUSABLE


def test_a_user_whose_own_jobs_fail_there_too_is_no_witness_for_the_site() -> None:
    users = Users(_driver())
    users.start("bob")
    users.refused("bob")
    users.refused("ann")
    users.refused("ann")
    assert _a(users.driver).trust is Trust.UNUSABLE


def test_errors_of_one_user_count_no_more_than_those_of_all_others() -> None:
    users = Users(_driver())
    users.start("carol")
    for _ in range(10):
        users.refused("ann")
    users.refused("bob")
    assert _a(users.driver).trust is Trust.USABLE, "one of each counts"
    users.refused("bob")
    assert _a(users.driver).trust is Trust.UNUSABLE


def test_what_is_of_no_job_counts_as_ever() -> None:
    users = Users(_driver())
    users.start("bob")
    for _ in range(ERRORS):
        users.driver.send(SiteSilent(at=users.driver.now, site="a", reason="no route to host"))
    assert _a(users.driver).trust is Trust.UNUSABLE


def test_a_probe_that_fails_by_one_users_job_leaves_the_next_to_whose_components_start_there() -> None:
    driver = _driver(cooldown_s=10.0)
    users = Users(driver)
    users.start("bob")
    for _ in range(ERRORS):
        driver.send(SiteSilent(at=driver.now, site="a", reason="no route to host"))
    driver.report("a", 0)
    driver.pass_time(11.0)
    assert _a(driver).trust is Trust.PROBING
    users.refused("ann")
    assert _a(driver).trust is Trust.PROBING
    assert users.start("bob")
    driver.end(driver.tokens(users.last)[0])
    assert _a(driver).trust is Trust.USABLE


def test_a_job_of_a_user_whose_jobs_alone_fail_at_a_site_goes_elsewhere_and_not_for_ever() -> None:
    driver = _driver({"a": 100, "b": 50}, site_restarts_max=2)
    users = Users(driver)
    users.start("bob")
    for _ in range(ERRORS - 1):
        users.refused("ann")
    (token,) = users.submit("ann", ask(1))
    driver.end(token, outcome=Outcome.REFUSED, fault=Fault.SITE)
    job = driver.job(users.last)
    assert "only jobs of its user fail at a, and those of others start: the site keeps its trust" in driver.story(
        job.id
    )
    driver.pass_time(1.0)
    assert job.places == (("b", 1),)

    users.submit("ann")
    for _ in range(3):
        driver.pass_time(70.0)
        driver.end(*driver.tokens(users.last), outcome=Outcome.REFUSED, fault=Fault.SITE)
    assert driver.state(users.last) is JobState.FAILED
    assert driver.ended(users.last).reason.endswith("after 2 restarts")


def test_who_fails_and_who_starts_at_a_site_survives_a_restart_of_the_scheduler() -> None:
    driver = _driver()
    users = Users(driver)
    users.start("bob")
    users.refused("ann")
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    for _ in range(ERRORS):
        users.refused("ann")
    assert _a(driver).errors_of == {"ann": ERRORS + 1}
    assert _a(driver).trust is Trust.USABLE


def test_programs_of_one_user_alone_accuse_no_site_where_those_of_others_start() -> None:
    driver = CoreDriver({"a": 100, "b": 50}, scan_interval_s=0.0)
    users = Users(driver)
    users.start("bob")
    _accuse(users, "ann", 4)
    assert _a(driver).trust is Trust.USABLE
    _accuse(users, "bob", 2)
    assert _a(driver).trust is Trust.UNUSABLE


def test_programs_of_the_only_user_accuse_a_site_as_ever() -> None:
    driver = CoreDriver({"a": 100, "b": 50}, scan_interval_s=0.0)
    _accuse(Users(driver), "ann", 2)
    assert _a(driver).trust is Trust.UNUSABLE


def _accuse(users: Users, user: str, programs: int) -> None:
    """Programs of the user are not found at a, and do well at b."""
    for number in range(programs):
        for site, code in (("a", 127), ("b", 0)):
            application = Application(executable=f"/bin/{user}-{number}")
            component = Component(processors=1, site=site, application=application)
            tokens = users.submit(user, Request(components=(component,)))
            users.driver.ready(*tokens)
            outcome = Outcome.FAILED if code else Outcome.DONE
            users.driver.end(*tokens, outcome=outcome, exit_code=code)
            users.driver.cancel(users.last)


ACTS = st.sampled_from(["start", "refused", "breaks"])
HISTORY = st.lists(st.tuples(st.sampled_from(["ann", "bob", "carol"]), ACTS), max_size=40)


@given(HISTORY)
def test_on_no_history_does_a_site_lose_its_trust_by_one_user_where_components_of_another_start(
    history: list[tuple[str, str]],
) -> None:
    users = Users(_driver())
    site, failed, start = _a(users.driver), Counter[str](), set[str]()
    for user, act in history:
        if act == "start":
            users.start(user)
            start.add(user)
        else:
            getattr(users, act)(user)
            failed[user] += 1
            start.discard(user)
        if site.trust is not Trust.USABLE:
            (loudest, most), *_ = failed.most_common(1)
            rest = failed.total() - most
            assert not start - {loudest} or min(rest, most) + rest >= ERRORS
            return
        assert failed.total() < 2 * ERRORS or len(failed) == 1 or start, "and what fails for all is out soon"
