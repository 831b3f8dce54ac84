"""Cursors: what was written is read again, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.daemon.service.cursors import CURSOR_CHARACTERS_MAX, read_cursor, read_number_cursor, write_cursor
from koala.model.errors import InvalidError
from koala.store import NUMBER_MAX


@given(st.text(max_size=1_024))
def test_a_cursor_leads_back_to_where_it_was_written(name: str) -> None:
    cursor = write_cursor("files", name)
    assert len(cursor) <= CURSOR_CHARACTERS_MAX
    assert cursor.isascii()
    assert read_cursor("files", cursor) == name


@given(st.integers(min_value=0, max_value=NUMBER_MAX))
def test_a_number_comes_back_as_it_was(number: int) -> None:
    assert read_number_cursor("jobs", write_cursor("jobs", str(number))) == number


@given(st.text(), st.sampled_from(["jobs", "files"]))
def test_text_that_nobody_wrote_as_a_cursor_is_refused(text: str, listing: str) -> None:
    with pytest.raises(InvalidError, match="begin again without one"):
        read_number_cursor(listing, f"!{text}")


@pytest.mark.parametrize("after", ["", "-1", "1.5", "٣", str(NUMBER_MAX + 1), "9" * 5_000, "1 "])
def test_a_cursor_that_is_not_a_number_is_refused_where_numbers_are_listed(after: str) -> None:
    with pytest.raises(InvalidError, match="not a cursor of the list of jobs"):
        read_number_cursor("jobs", write_cursor("jobs", after))


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(InvalidError, match="not a cursor of the list of files"):
        read_cursor("files", write_cursor("jobs", "12"))


def test_a_cursor_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidError, match="begin again"):
        read_cursor("files", write_cursor("files", "x" * CURSOR_CHARACTERS_MAX))
