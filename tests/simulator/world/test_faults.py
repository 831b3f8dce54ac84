"""Everything that can go wrong in a simulated world, each kind by itself."""

from __future__ import annotations

import pytest

from koala.model.grid import AnswerFaults, Background
from koala.model.messages import CancelAsked, ComponentEnded, ComponentReady, Outcome, SiteSilent
from koala.simulator.world.faults import component_fails_at
from tests.support.hand_driven import HandDriven, grid, job, short, site


def started(hands: HandDriven, *tokens: str, where: str = "a") -> None:
    if not hands.world.submitted:
        hands.until(hands.now)
    for token in tokens:
        hands.start(token, where, 1, parts=len(tokens))


def test_failing_components_break_before_the_barrier_or_during_execution_and_the_others_go_on() -> None:
    tokens = [f"t{index}" for index in range(40)]
    hands = HandDriven(grid(site("a", 100, component_failure=0.5)), job(0.0, 40))
    started(hands, *tokens)
    at_barrier = hands.heard(1)
    ready = [line.split()[2] for line in at_barrier if "ready" in line]
    broken_early = [line.split()[2] for line in at_barrier if "site_failed" in line]
    assert sorted(ready + broken_early) == sorted(tokens)
    hands.release(*ready)
    ends = hands.heard(1000)
    broken_late = [line for line in ends if "site_failed" in line]
    assert broken_early
    assert broken_late
    assert all(1 <= float(line.split()[0]) < 101 for line in broken_late)
    assert {line for line in ends if line not in broken_late} == {
        f"101 done {token}" for token in ready if not any(line.endswith(f" {token}") for line in broken_late)
    }
    assert hands.world.components.failures == len(broken_early) + len(broken_late)


def test_the_fate_of_a_component_depends_on_its_token_alone() -> None:
    fates = [component_fails_at(7, f"t{index}", 0.3) for index in range(200)]
    assert fates == [component_fails_at(7, f"t{index}", 0.3) for index in range(200)]
    failing = [index for index, fate in enumerate(fates) if fate is not None]
    more = [index for index in range(200) if component_fails_at(7, f"t{index}", 0.6) is not None]
    assert 30 <= len(failing) <= 90
    assert set(failing) <= set(more), "a higher chance breaks the same components, and more"


def test_an_outage_loses_what_the_site_holds_and_says_so_when_it_is_back() -> None:
    hands = HandDriven(grid(site("a", 10, outages=((50.0, 80.0),)), site("b", 10)), job(0.0, 4))
    started(hands, "lost")
    started(hands, "safe", where="b")
    hands.release("lost", "safe")
    assert hands.heard(60) == ["0 ready lost", "0 ready safe", "50 a silent"]
    assert hands.world.sites["a"].idle == 10
    assert hands.heard(200) == ["80 a others 0", "80 site_failed lost", "100 done safe"]


def test_during_an_outage_nothing_is_answered_and_a_start_is_lost() -> None:
    hands = HandDriven(grid(site("a", 10, outages=((50.0, 80.0),))), job(0.0, 4))
    started(hands, "old")
    hands.until(60)
    started(hands, "new")
    hands.abort("old", "a")
    hands.ask("a", "old", "new")
    assert hands.heard(79) == []
    assert hands.heard(81) == ["80 a others 0", "80 site_failed old"]
    hands.ask("a", "old", "new")
    assert hands.heard(82) == ["81 site_failed old", "81 absent new"]


def test_a_release_during_an_outage_reaches_the_other_sites_only() -> None:
    hands = HandDriven(grid(site("a", 10, outages=((50.0, 80.0),)), site("b", 10)), job(0.0, 4, 4, slowdown=1.0))
    started(hands, "down")
    started(hands, "up", where="b")
    hands.until(60)
    hands.release("down", "up")
    assert hands.heard(300) == ["80 a others 0", "80 site_failed down", "260 done up"]


def test_overlapping_outages_count_as_one() -> None:
    hands = HandDriven(grid(site("a", 10, outages=((10.0, 30.0), (20.0, 40.0)))))
    assert hands.heard(100) == ["10 a silent", "40 a others 0"]


def test_an_outage_takes_the_sites_own_users_too() -> None:
    users = Background(user_load=0.5, band_low=0.2, band_high=0.9)
    hands = HandDriven(grid(site("a", 100, background=users, outages=((5000.0, 6000.0),))))
    hands.until(5500)
    assert hands.world.sites["a"].others == 0
    back = hands.heard(6000.5)
    assert back[0] == "6000 a others 20", "dummies are back at once, users come one by one"


def test_drawn_outages_come_and_go_until_the_world_heals() -> None:
    hands = HandDriven(grid(site("a", 10, mean_time_between_outages_s=100.0, outage_mean_s=50.0), heal_at_s=5000.0))
    told = hands.until(50_000)
    silent = [event for event in told if isinstance(event, SiteSilent)]
    assert 15 <= len(silent) <= 60
    assert max(event.at for event in told) <= 5000
    assert not hands.world.sites["a"].down


def test_a_late_answer_arrives_as_something_of_its_own_moment() -> None:
    hands = HandDriven(grid(site("a", 10), answers=AnswerFaults(late=1.0, late_mean_s=30.0)), job(0.0, 4))
    started(hands, "t")
    (ready,) = [event for event in hands.until(1000) if isinstance(event, ComponentReady)]
    assert ready.at > 0


def test_an_answer_may_come_twice() -> None:
    hands = HandDriven(grid(site("a", 10), answers=AnswerFaults(twice=1.0)), job(0.0, 4))
    started(hands, "t")
    heard = [short(event) for event in hands.until(10_000) if isinstance(event, ComponentReady)]
    assert len(heard) == 2
    assert heard[0] == "0 ready t"


def test_with_every_message_lost_neither_commands_nor_answers_arrive() -> None:
    hands = HandDriven(grid(site("a", 10), answers=AnswerFaults(never=1.0)), job(0.0, 4))
    started(hands, "t")
    assert hands.heard(10_000) == []
    assert hands.world.sites["a"].idle == 10


@pytest.mark.parametrize("chance", [0.2, 0.8])
def test_about_the_given_share_of_messages_is_lost(chance: float) -> None:
    tokens = [f"t{index}" for index in range(400)]
    hands = HandDriven(grid(site("a", 1000), answers=AnswerFaults(never=chance)), job(0.0, 4))
    started(hands, *tokens)
    answered = len(hands.heard(1))
    arrived = hands.world.components.alive
    assert abs(arrived / 400 - (1 - chance)) < 0.1
    assert abs(answered / 400 - (1 - chance) ** 2) < 0.1


def test_a_lost_release_is_lost_for_all_components_of_a_site_or_for_none() -> None:
    for seed in range(20):
        hands = HandDriven(grid(site("a", 10), answers=AnswerFaults(never=0.3)), job(0.0, 4), seed=seed)
        started(hands, "t1", "t2", "t3")
        hands.release("t1", "t2", "t3")
        states = {
            hands.world.components.components[token].state
            for token in ("t1", "t2", "t3")
            if token in hands.world.components.components
        }
        assert len(states) <= 1


def test_after_healing_every_message_arrives_and_nothing_breaks() -> None:
    hands = HandDriven(
        grid(
            site("a", 100, component_failure=1.0, mean_time_between_outages_s=10.0),
            answers=AnswerFaults(never=1.0),
            heal_at_s=500.0,
        ),
        job(0.0, 4),
    )
    hands.until(501)
    started(hands, "t")
    hands.release("t")
    assert hands.heard(1000) == ["501 ready t", "601 done t"]


def test_a_component_doomed_before_healing_survives_it() -> None:
    hands = HandDriven(grid(site("a", 100, component_failure=1.0), heal_at_s=5.0), *[job(0.0, 1)])
    tokens = [f"t{index}" for index in range(30)]
    started(hands, *tokens)
    ready = [line.split()[2] for line in hands.heard(4) if "ready" in line]
    hands.release(*ready)
    ends = [event for event in hands.until(1000) if isinstance(event, ComponentEnded)]
    assert all(event.outcome is Outcome.DONE or event.at < 5 for event in ends)
    assert any(event.outcome is Outcome.DONE for event in ends)


def test_what_users_and_operators_do_can_be_planned() -> None:
    hands = HandDriven(grid(site("a", 10)), job(0.0, 4))
    hands.world.plan(CancelAsked(at=30.0, job=1))
    told = hands.until(100)
    assert isinstance(told[-1], CancelAsked)
    assert told[-1].at == 30.0
