"""Output as text: pieces that split no character, whatever their size, and components that have none."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.daemon.service.data.outputs import check_range, choose, read_output
from koala.model.api import OUTPUT_BYTES_MAX, Output
from koala.model.errors import InvalidError, NotFoundError, UnavailableError
from koala.sites import LiveSite, SiteError, Stream
from koala.store.rows import ComponentRow

FIRST = "1.1"


def component(token: str = FIRST, **fields: Any) -> ComponentRow:
    usual = {"job": 1, "run": 1, "part": 0, "parts": 2, "site": "A", "processors": 1, "claimed_at": 1.0}
    return ComponentRow(token=token, **{**usual, **fields})


class WrittenSite:
    """The one call of a site that reading output needs: bytes that were written, or what goes wrong."""

    def __init__(self, data: bytes = b"", trouble: Exception | None = None) -> None:
        self.data = data
        self.trouble = trouble

    async def output(self, token: str, stream: Stream, offset: int, limit: int) -> bytes:
        if self.trouble is not None:
            raise self.trouble
        return self.data[offset : offset + limit]

    def read(self, of: ComponentRow, offset: int, limit: int) -> Output:
        return asyncio.run(read_output(cast(LiveSite, self), of, "stdout", offset, limit))


ENDED = component(ended_at=9.0, outcome="done")


@given(st.text(max_size=40), st.integers(min_value=1, max_value=12))
def test_pieces_of_any_size_put_together_are_the_text(text: str, limit: int) -> None:
    site = WrittenSite(text.encode("utf-8", "replace"))
    told, offset, complete = "", 0, False
    for _ in range(len(site.data) + 2):
        piece = site.read(ENDED, offset, limit)
        assert piece.offset == offset
        told, offset, complete = told + piece.text, piece.next_offset, piece.complete
        if complete:
            break
    assert complete
    assert told == site.data.decode()
    assert offset == len(site.data)


@given(st.binary(max_size=40), st.integers(min_value=1, max_value=12))
def test_bytes_that_are_no_text_are_replaced_and_do_not_hold_anything_up(data: bytes, limit: int) -> None:
    site = WrittenSite(data)
    offset, pieces = 0, 0
    while not (piece := site.read(ENDED, offset, limit)).complete:
        assert piece.next_offset > offset
        offset = piece.next_offset
        pieces += 1
        assert pieces <= len(data)
    assert piece.next_offset == len(data)


def test_half_a_character_of_a_component_that_runs_is_left_for_the_next_piece() -> None:
    site = WrittenSite("grün".encode()[:3])
    piece = site.read(component(), 0, 100)
    assert (piece.text, piece.next_offset, piece.complete) == ("gr", 2, False)
    site.data = "grün".encode()
    assert site.read(component(), 2, 100).text == "ün"


def test_half_a_character_at_the_end_of_an_ended_component_is_replaced() -> None:
    piece = WrittenSite("grü".encode()[:3]).read(ENDED, 0, 100)
    assert (piece.text, piece.next_offset, piece.complete) == ("gr\N{REPLACEMENT CHARACTER}", 3, True)


def test_nothing_is_complete_while_the_component_runs() -> None:
    assert not WrittenSite(b"").read(component(), 0, 100).complete


def test_the_newest_start_of_a_part_in_the_last_run_is_meant() -> None:
    rows = [
        component("1.1", run=1, part=0, claimed_at=1.0),
        component("1.2", run=1, part=1, claimed_at=1.0),
        component("1.9", run=2, part=0, claimed_at=5.0),
        component("1.10", run=2, part=0, claimed_at=5.0),
    ]
    assert choose(1, rows, 0, None) == rows[3]
    assert choose(1, rows, 1, 1) == rows[1]


@pytest.mark.parametrize(
    ("rows", "part", "run", "words"),
    [
        ([], 0, None, "none of its components has been started yet"),
        ([component()], 0, 2, "no run 2 with components; it has: 1"),
        ([component(), component("1.2", part=1)], 2, None, "no component 2 in run 1; it has: 0, 1"),
        ([component()], -1, None, "no component -1"),
    ],
)
def test_a_component_that_is_not_there_is_named_with_those_that_are(
    rows: list[ComponentRow], part: int, run: int | None, words: str
) -> None:
    with pytest.raises(NotFoundError, match=words):
        choose(1, rows, part, run)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (component(ended_at=2.0, outcome="refused", reason="too large"), r"never started \(too large\)"),
        (component(ended_at=2.0, outcome="absent"), "never started, so it wrote nothing"),
        (component(ended_at=2.0, outcome="done"), "is gone"),
        (component(), "has not been accepted by its site yet"),
    ],
)
def test_a_site_without_the_output_is_explained(row: ComponentRow, words: str) -> None:
    with pytest.raises(NotFoundError, match=words):
        WrittenSite(trouble=SiteError("A", "there is no component")).read(row, 0, 100)


def test_a_site_that_cannot_be_read_now_is_no_loss() -> None:
    with pytest.raises(UnavailableError, match="cannot be read at A now: it is away; try again"):
        WrittenSite(trouble=OSError(5, "it is away")).read(ENDED, 0, 100)


@pytest.mark.parametrize(
    ("stream", "offset", "limit", "field"),
    [
        ("stdin", 0, 1, "stream"),
        ("stdout", -1, 1, "offset"),
        ("stdout", 2**63, 1, "offset"),
        ("stdout", 0, 0, "limit"),
        ("stdout", 0, OUTPUT_BYTES_MAX + 1, "OUTPUT_BYTES_MAX"),
    ],
)
def test_a_range_that_no_output_has_is_refused(stream: str, offset: int, limit: int, field: str) -> None:
    with pytest.raises(InvalidError, match=field):
        check_range(stream, offset, limit)
    check_range("stderr", 0, OUTPUT_BYTES_MAX)
