"""The patterns in the names of streams: filled in by the driver, the node's where the component runs."""

from __future__ import annotations

import pytest

from koala.model.launch import NO_INDEX, SitePart, SitePiece, filled_in, stream_parts, stream_problem


def name(text: str, *, array: int | None = None, index: int | None = None) -> str:
    return filled_in(text, job=42, job_name="a/b 100%", array=array, index=index)


def test_what_the_driver_knows_is_filled_in() -> None:
    assert name("%x-%j.%J") == "a_b 100%%-42.42"
    assert name("%A_%a", array=40, index=7) == "40_7"
    assert name("%A_%a") == f"42_{NO_INDEX}"
    assert name("%4j %2a %n%t", index=7) == "0042 07 00"


def test_the_node_and_percent_signs_are_left_for_the_components_script() -> None:
    assert stream_parts(name("%x.%N.out%%")) == ["a_b 100%.", SitePiece(SitePart.NODE), ".out%"]
    assert stream_parts("plain") == ["plain"]
    assert stream_parts("/scratch/%u/out") == ["/scratch/", SitePiece(SitePart.USER), "/out"]
    assert stream_parts("%%N%4N") == ["%N", SitePiece(SitePart.NODE)]
    assert stream_parts("100%.txt") == ["100%.txt"]
    assert stream_parts("") == []


def test_the_number_of_a_batch_script_is_left_for_its_site() -> None:
    left = filled_in("%x-%j.%4J", job=42, job_name="a", array=None, index=None, batch_script=True)
    assert stream_parts(left) == ["a-", SitePiece(SitePart.JOB), ".", SitePiece(SitePart.JOB, 4)]
    assert filled_in("%A_%a", job=42, job_name="a", array=40, index=7, batch_script=True) == "40_7"


@pytest.mark.parametrize(("text", "wrong"), [("a.%q", "%q"), ("100%", "%"), ("%.txt", "%.")])
def test_what_stands_for_nothing_is_named(text: str, wrong: str) -> None:
    assert stream_problem(text) == f"{wrong} stands for nothing"
    assert name(text) == text


@pytest.mark.parametrize("text", ["", "out", "%j", "%5a%%%x%N", "%%q"])
def test_what_is_known_is_no_problem(text: str) -> None:
    assert stream_problem(text) is None
