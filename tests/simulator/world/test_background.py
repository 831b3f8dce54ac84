"""The load that is not ours: it stays in its band, takes nothing from a queue, and is reported as it changes."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from koala.model.grid import Background, BandOver, LocalScheduler
from koala.model.messages import SiteReported
from koala.simulator.workloads.draws import geometric, stream
from tests.support.hand_driven import HandDriven, at_once, grid, job, site

BAND = Background(user_load=0.05, user_size_mean=2.0, user_execution_mean_s=300.0, band_low=0.15, band_high=0.20)


def reports(hands: HandDriven, until: float) -> list[SiteReported]:
    return [event for event in hands.until(until) if isinstance(event, SiteReported)]


def test_users_and_dummies_together_stay_in_the_band_of_an_idle_site() -> None:
    told = reports(HandDriven(grid(site("a", 200, background=BAND))), 100_000)
    assert told[0].at == 0
    assert told[0].others == 30
    assert all(30 <= report.others <= 40 for report in told)
    assert len({report.others for report in told}) > 3


def test_a_band_over_the_grid_holds_the_load_of_all_sites_and_leaves_each_to_its_users() -> None:
    busy = msgspec.structs.replace(BAND, user_load=0.3)
    quiet = msgspec.structs.replace(BAND, user_load=0.02)
    sites = site("a", 100, background=busy), site("b", 200, background=quiet)
    hands = HandDriven(grid(*sites, background_band=BandOver.GRID))
    a, b = hands.world.sites["a"], hands.world.sites["b"]
    shares = []
    for until in range(0, 30_000, 100):
        hands.until(float(until))
        users = a.users + b.users
        assert users > 60 or 45 <= users + a.dummies + b.dummies <= 60
        assert not (a.queue and a.dummies)
        shares.append((a.users + a.dummies) / 100)
    assert max(shares) > 0.25  # beyond a's own share: nobody holds it there
    assert b.dummies > 0


def test_a_report_comes_only_when_something_changed() -> None:
    told = reports(HandDriven(grid(site("a", 200, background=BAND))), 20_000)
    assert all(before.others != after.others for before, after in itertools.pairwise(told))


def test_with_an_interval_reports_come_at_its_multiples_only() -> None:
    told = reports(HandDriven(grid(site("a", 200, background=BAND), report_interval_s=30.0)), 20_000)
    assert told
    assert all(report.at % 30 == 0 for report in told)


def test_a_site_without_users_reports_nothing() -> None:
    assert reports(HandDriven(grid(site("a", 200))), 1000) == []


def test_a_site_tells_when_its_users_end_where_plans_are_made() -> None:
    users = Background(user_load=0.6, user_size_mean=3.0, user_execution_mean_s=300.0, band_low=0.65, band_high=0.8)
    plain = grid(site("a", 50, background=users))
    hands = HandDriven(at_once(plain, plan_depth=1))
    told = reports(hands, 5_000)
    assert any(report.releases for report in told)
    for report in told:
        assert sum(processors for _, processors in report.releases) <= report.others
        assert all(end_at >= report.at for end_at, _ in report.releases)
    last, now_there = told[-1], hands.world.sites["a"]
    assert sum(processors for _, processors in last.releases) == now_there.users
    assert not any(report.releases for report in reports(HandDriven(plain), 5_000))


def test_a_user_in_the_place_of_a_dummy_is_told() -> None:
    users = Background(user_load=0.3, user_size_mean=1.0, user_execution_mean_s=500.0, band_low=0.5, band_high=0.5)
    told = reports(HandDriven(at_once(grid(site("a", 20, background=users)), plan_depth=1)), 500)
    same = [pair for pair in itertools.pairwise(told) if pair[0].others == pair[1].others]
    assert same
    assert all(before.releases != after.releases for before, after in same)


def test_dummies_take_no_processors_that_are_not_idle() -> None:
    only_dummies = Background(user_load=0.0, band_low=0.5, band_high=0.6)
    hands = HandDriven(grid(site("a", 10, background=only_dummies)), job(0.0, 4, execution_s=50.0))
    hands.until(0)
    assert hands.world.sites["a"].dummies == 5
    hands.start("t", "a", 5)
    hands.start("waits", "a", 5)
    hands.release("t")
    assert hands.world.sites["a"].dummies == 5
    hands.until(51)
    assert hands.world.sites["a"].ours == 5, "what waits in the queue comes before dummies"


def test_dummies_make_room_for_users_who_would_exceed_the_band() -> None:
    heavy = Background(user_load=0.9, user_size_mean=6.0, user_execution_mean_s=100.0, band_low=0.4, band_high=0.5)
    hands = HandDriven(grid(site("a", 50, background=heavy)))
    site_a = hands.world.sites["a"]
    for at in range(100, 20_000, 100):
        hands.until(float(at))
        assert site_a.dummies == 0 or site_a.others <= 25
        assert site_a.idle >= 0


def test_users_above_the_band_for_too_long_make_the_run_void() -> None:
    heavy = Background(user_load=0.6, band_low=0.1, band_high=0.2, void_after_s=60.0)
    calm = Background(user_load=0.0)
    hands = HandDriven(grid(site("a", 100, background=heavy), site("b", 100, background=calm)))
    hands.until(20_000)
    voids = hands.world.voids(0.0, 20_000.0)
    assert voids
    assert all(void.to_s - void.from_s > 60 for void in voids)


def test_a_short_excess_does_not_make_the_run_void() -> None:
    patient = Background(user_load=0.6, band_low=0.1, band_high=0.2, void_after_s=1e9)
    hands = HandDriven(grid(site("a", 100, background=patient)))
    hands.until(20_000)
    assert hands.world.voids(0.0, 20_000.0) == []


def test_users_offer_the_load_they_should() -> None:
    alone = Background(user_load=0.4, user_size_mean=3.0, user_execution_mean_s=200.0, band_low=0.0, band_high=0.0)
    hands = HandDriven(grid(site("a", 100, background=alone)))
    hands.until(400_000)
    used = hands.world.sites["a"].used_processor_s("others", 400_000) / (100 * 400_000)
    assert used == pytest.approx(0.4, rel=0.1)


def test_users_with_a_seed_of_their_own_are_the_same_in_every_run() -> None:
    def told(seed: int, users: int | None) -> list[SiteReported]:
        band = msgspec.structs.replace(BAND, seed=users)
        return reports(HandDriven(grid(site("a", 200, background=band)), seed=seed), 20_000)

    assert told(1, None) != told(2, None)
    assert told(1, 2) == told(7, 2) == told(2, None)


def test_what_we_do_does_not_change_when_users_come() -> None:
    """Common random numbers: the arrivals of a site's users are the same whatever else happens."""
    quiet = HandDriven(grid(site("a", 200, background=BAND)))
    busy = HandDriven(grid(site("a", 200, background=BAND), site("b", 50, background=BAND)), job(0.0, 4))
    quiet.until(0)
    busy.until(0)
    busy.start("t", "b", 30)
    a_of_busy = [event for event in reports(busy, 20_000) if event.site == "a"]
    assert [(event.at, event.others) for event in reports(quiet, 20_000)] == [
        (event.at, event.others) for event in a_of_busy
    ]


@pytest.mark.parametrize("scheduler", list(LocalScheduler))
def test_users_and_components_share_one_queue_without_exceeding_the_site(scheduler: LocalScheduler) -> None:
    users = Background(user_load=0.7, user_size_mean=5.0, band_low=0.0, band_high=0.8)
    hands = HandDriven(grid(site("a", 40, scheduler=scheduler, background=users)), job(0.0, 4, walltime_s=500.0))
    site_a = hands.world.sites["a"]
    for index in range(60):
        hands.until(float(index * 100))
        hands.start(f"t{index}", "a", 1 + index % 9)
        hands.release(*[f"t{earlier}" for earlier in range(index + 1)])
        assert site_a.idle == 40 - site_a.ours - site_a.users - site_a.dummies
        assert 0 <= site_a.idle <= 40
    for index in range(60):
        hands.abort(f"t{index}", "a")
    assert (site_a.ours, hands.world.components.alive) == (0, 0)


def test_sizes_of_users_have_their_mean_and_are_at_least_one() -> None:
    rng = stream(1, "sizes")
    sizes = [geometric(rng, 4.0) for _ in range(20_000)]
    assert min(sizes) == 1
    assert sum(sizes) / len(sizes) == pytest.approx(4.0, rel=0.05)
    assert geometric(rng, 1.0) == 1


def test_the_verdict_void_is_the_same_whatever_our_jobs_hold() -> None:
    """Users who only wait because we hold the processors count from their arrival."""
    users = Background(user_load=0.3, band_low=0.1, band_high=0.2)
    verdicts = []
    for held in (0, 95):
        hands = HandDriven(grid(site("a", 100, background=users)), job(0.0, 4, execution_s=1e9))
        hands.until(0)
        if held:
            hands.start("t", "a", held)
            hands.release("t")
        hands.until(20_000)
        verdicts.append(hands.world.voids(0.0, 20_000.0))
    assert verdicts[0]
    assert verdicts[0] == verdicts[1]


def test_the_bands_of_all_sites_together_decide_whether_a_run_is_void() -> None:
    crowded = Background(user_load=0.6, band_low=0.0, band_high=0.2)
    empty = Background(user_load=0.0, band_low=0.0, band_high=0.2)
    alone = HandDriven(grid(site("a", 50, background=crowded)))
    beside = HandDriven(grid(site("a", 50, background=crowded), site("b", 5_000, background=empty)))
    for hands in (alone, beside):
        hands.until(20_000)
    assert alone.world.voids(0.0, 20_000.0)
    assert beside.world.voids(0.0, 20_000.0) == []


def test_void_periods_are_cut_to_the_period_that_is_measured() -> None:
    heavy = Background(user_load=0.9, band_low=0.0, band_high=0.0)
    hands = HandDriven(grid(site("a", 100, background=heavy)))
    hands.until(20_000)
    voids = hands.world.voids(5_000.0, 6_000.0)
    assert voids
    assert all(5_000 <= void.from_s < void.to_s <= 6_000 for void in voids)
    assert hands.world.voids(5_000.0, 5_010.0) == []


def test_an_outage_ends_what_users_wanted_there() -> None:
    heavy = Background(user_load=0.9, band_low=0.0, band_high=0.0)
    hands = HandDriven(grid(site("a", 100, background=heavy, outages=((5_000.0, 9_000.0),))))
    hands.until(20_000)
    voids = hands.world.voids(0.0, 20_000.0)
    assert any(void.to_s == 5_000 for void in voids)
    assert not any(void.from_s < 9_000 and void.to_s > 5_000 for void in voids)


def test_the_band_is_the_fraction_as_it_was_written() -> None:
    """As binary floats 0.07 * 100 is a little more than 7, and 0.29 * 100 a little less than 29."""
    low = HandDriven(grid(site("a", 100, background=Background(user_load=0.0, band_low=0.07, band_high=0.29))))
    assert low.world.sites["a"].dummies == 7
