"""What a job has used, of its components."""

from __future__ import annotations

from typing import Any

import pytest

from koala.daemon.service.answers import usage_info
from koala.model.api import ComponentRun

_GIB = 1024**3


def ran(run: int = 1, part: int = 0, **fields: Any) -> ComponentRun:
    """A component of two processors whose application ran for ten seconds."""
    times: dict[str, Any] = {"claimed_at": 0.0, "released_at": 100.0, "ended_at": 110.0}
    return ComponentRun(
        **{"token": f"1.{part}", "run": run, "part": part, "site": "a", "processors": 2, **times, **fields}
    )


@pytest.mark.parametrize("times", [{"released_at": None}, {"ended_at": None}], ids=["never released", "runs"])
def test_nothing_is_told_before_the_end_of_an_application(times: dict[str, Any]) -> None:
    each = ran(**times)
    assert usage_info([each], 0) is None
    assert (each.used_in_words, each.memory_in_words) == ("", "")


def test_processor_time_of_all_runs_is_set_against_what_they_held_from_the_start_of_the_application_on() -> None:
    told = usage_info([ran(1, processor_s=2.0), ran(2, processor_s=18.0, peak_memory_bytes=_GIB)], 4 * _GIB)
    assert told is not None
    assert (told.processor_s, told.held_processor_s, told.efficiency) == (20.0, 40.0, 0.5)
    words = "20.0 of 40.0 processor seconds (50%); 1 GiB of memory at the peak, of 4 GiB asked for (25%)"
    assert told.in_words == words


def test_what_was_not_measured_is_missing_and_never_zero() -> None:
    told = usage_info([ran()], _GIB)
    assert told is not None
    assert (told.processor_s, told.efficiency, told.peak_memory_bytes) == (None, None, None)
    assert told.in_words == "processor time not measured; memory not measured"
    assert (ran().used_in_words, ran().memory_in_words) == ("not measured", "not measured")


def test_processor_time_that_is_known_of_some_components_is_set_against_what_these_held() -> None:
    told = usage_info([ran(processor_s=10.0), ran(part=1)], 0)
    assert told is not None
    assert (told.measured, told.components, told.efficiency) == (1, 2, 0.5)
    assert told.in_words.startswith("10.0 of 20.0 processor seconds (50%), measured for 1 of 2 components; ")


def test_memory_is_that_of_the_run_that_had_most_of_those_of_which_all_is_known() -> None:
    runs = [
        ran(1, 0, peak_memory_bytes=1),
        ran(1, 1, peak_memory_bytes=2),
        ran(2, 0, peak_memory_bytes=2),
        ran(2, 1, peak_memory_bytes=2),
        ran(3, 0, peak_memory_bytes=100),
        ran(3, 1),
    ]
    told = usage_info(runs, 0)
    assert told is not None
    assert told.peak_memory_bytes == 4


def test_long_times_are_told_in_hours() -> None:
    told = usage_info([ran(ended_at=100.0 + 36_000.0, processor_s=18_000.0)], 0)
    assert told is not None
    assert told.in_words.startswith("5.0 of 20.0 processor hours (25%); ")
