"""Any text is a file's name, and none leads out of the area; what is half made or half removed is never seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.files.area.directory import AreaDirectory
from koala.files.area.layout import ENCODED_CHARACTERS_MAX, copy_name, decode, encode, replica_path
from koala.files.checksums import of_file, of_path
from koala.model.launch import InputLink
from tests.support.file_world import HOSTILE, World


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_a_file_in_the_area_like_any_other(tmp_path: Path, name: str) -> None:
    area = AreaDirectory("delft", tmp_path / "area")
    area.open()
    (tmp_path / "outside").write_bytes(b"bytes")
    path = area.adopt(name, tmp_path / "outside")
    assert path.parent == tmp_path / "area" / "replicas"
    assert path.resolve().is_relative_to((tmp_path / "area").resolve())
    assert area.size_bytes(replica_path(name)) == 5
    InputLink(source=replica_path(name), destination="input")  # a component may be given it
    assert {each.name for each in tmp_path.iterdir()} == {"area", "outside"}
    area.open()
    assert area.size_bytes(replica_path(name)) == 5
    area.forget(name)
    assert area.size_bytes(replica_path(name)) is None


def test_hostile_names_do_not_collide() -> None:
    assert len({encode(name) for name in HOSTILE}) == len(HOSTILE)


@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_different_names_have_different_places(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)
    assert decode(encode(one)) in (one, None)


@pytest.mark.parametrize("length", [ENCODED_CHARACTERS_MAX - 1, ENCODED_CHARACTERS_MAX, 4_000])
def test_a_name_at_and_beyond_the_limit_is_told_from_one_that_begins_alike(length: int) -> None:
    one, other = encode("x" * length), encode("x" * length + "y")
    assert one != other
    assert max(len(one), len(other)) <= 255 - 1  # with the dot of a file that is being made
    assert (decode(one) is not None) == (length < ENCODED_CHARACTERS_MAX)


def test_a_file_that_cannot_be_adopted_leaves_the_old_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put("data", b"old")
    area = world.areas["delft"]
    with pytest.raises(FileNotFoundError):
        area.adopt("data", tmp_path / "nowhere")
    assert [each.name for each in (area.root / "replicas").iterdir()] == ["=data"]
    assert area.replica("data").read_bytes() == b"old"


def test_opening_removes_what_a_killed_process_left_half_done(tmp_path: Path) -> None:
    area = AreaDirectory("delft", tmp_path)
    area.open()
    (tmp_path / "replicas" / ".=half").write_bytes(b"ha")
    held, loose, dropped = (area.copy_named(copy_name(name, None, None)) for name in "abc")
    for copy in (held, loose, dropped):
        copy.hold("t1")
    loose.let_go("t1")
    assert area.discard(dropped) is not None
    AreaDirectory("delft", tmp_path).open()
    assert [copy.home for copy in area.copies()] == [held.home]
    assert list((tmp_path / "trash").iterdir()) == []
    assert list((tmp_path / "replicas").iterdir()) == []
    assert area.discard(dropped) is None


def test_a_checksum_is_that_of_the_piece_asked_for(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"xxabcxx")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert asyncio.run(of_file(tmp_path / "abc", 2, 3)) == abc
    assert of_path(tmp_path / "abc") != abc
    assert of_path(tmp_path / "abc", 7) == of_path(Path("/dev/null"))
