"""What a simulated site does with a component, and how it keeps the contract of the messages."""

from __future__ import annotations

import pytest

from koala.model.grid import LocalScheduler, Startup
from koala.model.messages import ComponentEnded, JobSubmitted
from koala.model.request import Request
from tests.support.hand_driven import HandDriven, grid, job, site


def one_site() -> HandDriven:
    return HandDriven(grid(site("a", 10)), job(0.0, 4))


def test_a_component_that_fits_is_ready_at_once_and_ends_after_its_execution_time() -> None:
    hands = one_site()
    hands.until(5)
    hands.start("t", "a", 4)
    assert hands.heard(10) == ["5 ready t"]
    hands.release("t")
    assert hands.heard(200) == ["110 done t"]


def test_an_execution_that_ends_well_reports_exit_code_zero() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    hands.release("t")
    end = hands.until(200)[-1]
    assert isinstance(end, ComponentEnded)
    assert end.exit_code == 0


def test_all_processors_of_a_simulated_component_are_busy_from_its_release_to_its_end() -> None:
    """However it ends; what it has in memory no model tells, and one that never ran used nothing that is known."""
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    hands.start("idle", "a", 4)
    hands.until(10)
    hands.release("t")
    hands.until(60)
    hands.abort("t", "a")
    hands.abort("idle", "a")
    ends = {each.token: each for each in hands.until(200) if isinstance(each, ComponentEnded)}
    assert ends["t"].processor_s == pytest.approx(200.0)
    assert ends["t"].peak_memory_bytes is None
    assert ends["idle"].processor_s is None


def test_no_application_starts_before_its_barrier_is_released() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    assert hands.heard(10_000) == ["0 ready t"]


def test_a_component_that_must_wait_is_accepted_and_begins_when_another_ends() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("first", "a", 8)
    hands.start("second", "a", 4)
    hands.release("first")
    assert hands.heard(200) == ["0 ready first", "0 accepted second", "100 done first", "100 ready second"]


def test_a_component_larger_than_its_site_is_refused() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 11)
    assert hands.heard(1) == ["0 refused t"]
    assert hands.world.sites["a"].idle == 10


def test_a_start_that_comes_twice_starts_once() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    hands.start("t", "a", 4)
    assert hands.world.sites["a"].idle == 6
    assert hands.heard(1) == ["0 ready t", "0 ready t"]


@pytest.mark.parametrize("released", [False, True])
def test_an_abort_frees_the_processors_at_once(released: bool) -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    if released:
        hands.release("t")
    hands.until(7)
    hands.abort("t", "a")
    assert hands.world.sites["a"].idle == 10
    assert hands.heard(1000) == ["7 aborted t"]


def test_an_abort_reaches_a_component_in_the_sites_queue() -> None:
    hands = HandDriven(grid(site("a", 10, scheduler=LocalScheduler.FCFS)), job(0.0, 4))
    hands.until(0)
    hands.start("holds", "a", 8)
    hands.start("waits", "a", 9)
    hands.start("behind", "a", 2)
    hands.until(1)
    hands.abort("waits", "a")
    assert hands.heard(2) == ["1 aborted waits", "1 ready behind"]


def test_a_component_aborted_at_the_barrier_never_runs_however_late_its_release() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    hands.abort("t", "a")
    hands.release("t")
    assert hands.heard(1000) == ["0 ready t", "0 aborted t"]


def test_an_abort_before_the_start_makes_the_site_refuse_the_start() -> None:
    hands = one_site()
    hands.until(0)
    hands.abort("t", "a")
    hands.start("t", "a", 4)
    assert hands.heard(1000) == ["0 aborted t", "0 refused t"]
    assert hands.world.sites["a"].idle == 10


def test_a_question_about_an_unknown_token_makes_the_site_refuse_its_start() -> None:
    hands = one_site()
    hands.until(0)
    hands.ask("a", "t")
    hands.start("t", "a", 4)
    assert hands.heard(1000) == ["0 absent t", "0 refused t"]


def test_an_abort_of_what_has_ended_repeats_its_end() -> None:
    hands = one_site()
    hands.until(0)
    hands.start("t", "a", 4)
    hands.release("t")
    hands.until(150)
    hands.abort("t", "a")
    assert hands.heard(200) == ["150 done t"]


def test_a_site_that_is_asked_repeats_the_newest_of_each_token() -> None:
    hands = HandDriven(grid(site("a", 10), startup=Startup(base_s=5.0)), job(0.0, 4))
    hands.until(0)
    hands.start("runs", "a", 4)
    hands.until(6)
    hands.release("runs")
    hands.start("starting", "a", 2)
    hands.start("queued", "a", 9)
    hands.until(7)
    hands.ask("a", "runs", "starting", "queued")
    assert hands.heard(8) == ["7 running runs", "7 accepted starting", "7 accepted queued"]


def test_the_startup_takes_what_its_formula_says() -> None:
    # (10 + 5 * 2) * (1 + 0.5 * 4/10): three components, four of ten processors in use before it.
    startup = Startup(base_s=10.0, per_component_s=5.0, load_factor=0.5)
    hands = HandDriven(grid(site("a", 10), startup=startup), job(0.0, 4))
    hands.until(0)
    hands.start("first", "a", 4, parts=1)
    hands.start("second", "a", 6, parts=3)
    assert hands.heard(100) == ["10 ready first", "24 ready second"]


def test_a_site_starts_components_in_its_own_time_and_the_others_in_that_of_the_grid() -> None:
    own, at_once = Startup(base_s=1.0, per_component_s=2.0), Startup()
    sites = site("a", 10, startup=own), site("b", 10), site("c", 10, startup=at_once)
    hands = HandDriven(grid(*sites, startup=Startup(base_s=10.0)), job(0.0, 4))
    hands.until(0)
    for name in "abc":
        hands.start(name, name, 1, parts=2)
    assert hands.heard(100) == ["0 ready c", "3 ready a", "10 ready b"]


def test_the_jitter_of_a_startup_stays_in_its_bounds_and_belongs_to_the_token() -> None:
    startup = Startup(base_s=10.0, jitter=0.5)
    times = []
    for order in (["x", "y", "z"], ["z", "y", "x"]):
        hands = HandDriven(grid(site("a", 10), startup=startup), job(0.0, 4))
        hands.until(0)
        for token in order:
            hands.start(token, "a", 1)
        times.append(sorted(hands.heard(100)))
    assert times[0] == times[1]
    ready_s = [float(line.split()[0]) for line in times[0]]
    assert len(set(ready_s)) == 3
    assert all(5 <= at <= 15 for at in ready_s)


def test_an_abort_during_the_startup_leaves_nothing_behind() -> None:
    hands = HandDriven(grid(site("a", 10), startup=Startup(base_s=10.0)), job(0.0, 4))
    hands.until(0)
    hands.start("t", "a", 4)
    hands.until(5)
    hands.abort("t", "a")
    assert hands.heard(100) == ["5 aborted t"]


@pytest.mark.parametrize(
    ("places", "ends_at"), [(("a", "a", "a"), 100.0), (("a", "a", "b"), 130.0), (("a", "b", "c"), 160.0)]
)
def test_the_execution_time_depends_on_the_clusters_combined_and_on_nothing_else(
    places: tuple[str, ...], ends_at: float
) -> None:
    hands = HandDriven(grid(site("a", 50), site("b", 9), site("c", 7)), job(0.0, 2, 2, 2, slowdown=0.3))
    hands.until(0)
    for index, place in enumerate(places):
        hands.start(f"t{index}", place, 2, parts=3)
    hands.release("t0", "t1", "t2")
    ends = [event.at for event in hands.until(1000) if isinstance(event, ComponentEnded)]
    assert ends == pytest.approx([ends_at] * 3)


def test_an_execution_over_its_walltime_is_ended_by_the_site() -> None:
    hands = HandDriven(grid(site("a", 10)), job(0.0, 4, walltime_s=60.0))
    hands.until(0)
    hands.start("t", "a", 4)
    hands.release("t")
    assert hands.heard(1000) == ["0 ready t", "60 timed_out t"]


def test_submissions_come_at_their_times_with_ids_in_order() -> None:
    hands = HandDriven(grid(site("a", 10)), job(5.0, 1), job(5.0, 2), job(2.0, 3))
    told = [event for event in hands.until(10) if isinstance(event, JobSubmitted)]
    assert [(event.at, event.job, event.request.processors) for event in told] == [(2, 1, 3), (5, 2, 1), (5, 3, 2)]
    assert all(type(event.request) is Request for event in told)


def test_what_ends_comes_before_what_arrives_at_the_same_moment() -> None:
    hands = HandDriven(grid(site("a", 10)), job(0.0, 4), job(100.0, 4))
    hands.until(0)
    hands.start("t", "a", 4)
    hands.release("t")
    kinds = [type(event).__name__ for event in hands.until(100)]
    assert kinds == ["ComponentReady", "ComponentEnded", "JobSubmitted"]
