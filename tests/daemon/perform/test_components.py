"""What is known of the components on record: held, wanted, released, and when they are forgotten."""

from __future__ import annotations

import msgspec

from koala.daemon.perform.components import ComponentRegister
from koala.model.launch import NodeShare
from koala.store.rows import ComponentRow

replace = msgspec.structs.replace


def row(token: str, part: int = 0, run: int = 1, site: str = "a") -> ComponentRow:
    return ComponentRow(token=token, job=1, run=run, part=part, parts=2, site=site, processors=1, claimed_at=1.0)


def known(register: ComponentRegister, token: str) -> tuple[bool, bool, bool]:
    return register.is_held(token), register.is_wanted(token), register.is_released(token)


def test_a_component_is_wanted_until_it_is_aborted_and_held_until_its_end_is_on_record() -> None:
    register = ComponentRegister()
    register.record(row("1.1"))
    assert known(register, "1.1") == (True, True, False)
    register.record(replace(row("1.1"), released_at=2.0))
    assert known(register, "1.1") == (True, True, True)
    register.abort("1.1")
    assert known(register, "1.1") == (True, False, False)
    assert register.held_at("a") == ["1.1"]
    register.record(replace(row("1.1"), released_at=2.0, ended_at=3.0))
    assert known(register, "1.1") == (False, False, False)
    assert register.held_at("a") == []


def test_one_that_has_ended_is_known_as_long_as_another_of_its_run_is_held() -> None:
    register = ComponentRegister()
    first, second = replace(row("1.1", 1), released_at=2.0), replace(row("1.2", 0, site="b"), released_at=2.0)
    register.record(first)
    register.record(second)
    register.record(replace(first, ended_at=3.0))
    assert [each.token for each in register.released_with("1.2")] == ["1.2", "1.1"]
    register.record(replace(second, ended_at=4.0))
    assert register.get("1.1") is None
    assert register.get("1.2") is None


def test_after_a_recovery_only_runs_that_are_held_are_known() -> None:
    register = ComponentRegister()
    register.record(row("9.9"))
    over, ended, held = replace(row("1.1"), ended_at=2.0), replace(row("1.2", run=2), ended_at=3.0), row("1.3", 1, 2)
    register.reset([over, ended, held], aborted=["1.3"])
    assert [register.get(token) for token in ("9.9", "1.1", "1.2", "1.3")] == [None, None, ended, held]
    assert known(register, "1.3") == (True, False, False)


def test_an_abort_of_what_is_not_held_leaves_nothing_behind() -> None:
    register = ComponentRegister()
    register.abort("1.1")
    register.record(row("1.1"))
    assert register.is_wanted("1.1")


def test_nodes_are_kept_as_long_as_the_component_is_known() -> None:
    register = ComponentRegister()
    nodes = (NodeShare("n1", 1),)
    register.keep_nodes("1.1", nodes)
    assert register.nodes_of("1.1") is None
    register.record(row("1.1"))
    register.keep_nodes("1.1", nodes)
    assert register.nodes_of("1.1") == nodes
    register.record(replace(row("1.1"), ended_at=3.0))
    assert register.nodes_of("1.1") is None
