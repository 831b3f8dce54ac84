"""What is wrong with a site that lost its trust, in words: why, and what to do."""

from __future__ import annotations

from koala.core.state.site_belief import SiteBelief
from koala.daemon.service.answers import accusations, excluded_nodes, last_error_for, site_problem
from koala.daemon.service.sites.site_conditions import condition
from koala.model.messages import JobSubmitted, Outcome, SiteLost, SiteReported, SiteSilent
from koala.model.nodes import NamedNode, NodeSize
from tests.support.core_driver import CoreDriver, ask


def site(driver: CoreDriver, name: str) -> SiteBelief:
    return next(each for each in driver.ledger.sites if each.name == name)


def test_a_site_at_which_applications_fail_is_told_by_what_failed_and_not_by_its_errors() -> None:
    driver = CoreDriver({"bad": 10, "good": 9}, scan_interval_s=0.0)
    for job, owner in enumerate(("ann", "bob"), start=1):
        driver.send(JobSubmitted(at=driver.now, job=job, request=ask(5), owner=owner))
        for outcome, exit_code in ((Outcome.FAILED, 127), (Outcome.DONE, 0)):
            driver.pass_time(2.0)
            driver.ready(*driver.tokens(job))
            driver.end(*driver.tokens(job), outcome=outcome, exit_code=exit_code)
    told = site_problem(site(driver, "bad"), None, sees_all=True)
    assert "(job 2)" in told
    assert "(job" not in site_problem(site(driver, "bad"), None, sees_all=False)
    assert told.startswith("bad is not trusted: failures here of applications that did well elsewhere: exit code 127")
    assert told.endswith("; it is tried again after a pause (cooldown_s), or at once after koala site resume bad")
    assert "error" not in told
    assert condition(site(driver, "bad")).startswith("is not trusted: failures here of applications")
    assert site_problem(site(driver, "good"), None, sees_all=True) == ""


def test_a_lost_site_is_told_with_what_it_has_still_to_end() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(5, 5))
    driver.send(SiteLost(at=driver.now, site="a", reason="its hall burnt down"))
    told = site_problem(site(driver, "a"), None, sees_all=True)
    assert told.startswith("a is lost: ")
    assert told.endswith("; it is used again once it answers and has ended 2 components of ours")


def test_a_site_with_many_errors_is_told_with_the_last_of_them_also_while_one_job_tries_it() -> None:
    driver = CoreDriver({"a": 10})
    for _ in range(5):
        driver.send(SiteSilent(at=0.0, site="a", reason="no route"))
    told = site_problem(site(driver, "a"), None, sees_all=True)
    assert told.startswith("a is not trusted: 5 errors in a row, the last: ")
    driver.submit(ask(5))
    driver.wait_until(700.0)
    told = site_problem(site(driver, "a"), None, sees_all=True)
    assert "one job tries it now" in told


def test_a_user_hears_of_failures_of_own_jobs_alone() -> None:
    driver = CoreDriver({"bad": 10, "good": 9}, scan_interval_s=0.0)
    for job in (1, 2):
        driver.send(JobSubmitted(at=0.0, job=job, request=ask(5, restarts_max=0), owner=f"user {job}"))
        driver.ready(*driver.tokens(job))
        driver.end(*driver.tokens(job), outcome=Outcome.FAILED, exit_code=127)

    def told(visible: list[int]) -> list[str]:
        return accusations(site(driver, "bad"), visible)

    assert told([1, 2]) == ["exit code 127 (job 1)", "exit code 127 (job 2)"]
    assert told([2]) == ["exit code 127 (job 2)"]
    assert told([]) == []


def test_excluded_nodes_are_told_to_operators_and_to_the_user_whose_program_they_failed() -> None:
    driver = CoreDriver({"bad": 10, "good": 9}, scan_interval_s=0.0)
    named = (NamedNode("n1", NodeSize(10)),)
    driver.send(SiteReported(at=0.0, site="bad", processors=10, others=0, named=named))
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(5, name="solve"), owner="ann"))
    driver.ready(*driver.tokens(1))
    driver.end(*driver.tokens(1), outcome=Outcome.FAILED, exit_code=127, nodes=("n1",))
    driver.pass_time(2.0)
    (token,) = driver.ledger.claims
    driver.ready(token)
    driver.end(token)
    for caller, sees_all, is_told in (("ann", False, True), ("bob", False, False), ("root", True, True)):
        found = excluded_nodes(driver.scheduler.exclusions(0), caller, sees_all=sees_all)
        told = [(each.node, each.program, each.owner, each.reason, each.closes) for each in found]
        reason = "exit code 127 (job 1), and it did well elsewhere"
        assert told == ([("n1", "the script of solve", "ann", reason, True)] if is_told else [])


def test_the_last_error_of_a_site_names_a_component_to_its_user_and_to_operators_alone() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1)
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(5), owner="ann"))
    driver.end(*driver.tokens(1), outcome=Outcome.SITE_FAILED, reason="component 1.1 of ann vanished")
    bad = site(driver, "a")
    for caller, sees_all, named in (("ann", False, True), ("bob", False, False), ("bob", True, True)):
        told = site_problem(bad, None, caller=caller, sees_all=sees_all)
        assert ("1.1 of ann" in told) is named
        assert ("1.1 of ann" in last_error_for(caller, bad, sees_all=sees_all)) is named
        assert ("a component of another user failed there" in told) is not named
    driver.send(SiteSilent(at=driver.now, site="a", reason="no route"))
    assert last_error_for("bob", bad, sees_all=False) == "no route"
