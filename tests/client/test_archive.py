"""The archive of a directory from whoever made it: what is unpacked, what is left out, and that nothing leads out."""

from __future__ import annotations

import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

from koala.client.archive import unpack
from koala.client.errors import InvalidError

DIRECTORY, FILE, SYMBOLIC, HARD = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
PIPE, DEVICE = tarfile.FIFOTYPE, tarfile.CHRTYPE
# In the name of an entry: a directory beside the place, by its whole path.
OUTSIDE = "OUTSIDE"
# The kernel takes no link of so many characters, where tarfile would unpack what it points to in its place.
LONG = "./" * 2_100


class Packed(NamedTuple):
    """An entry of an archive. A file holds its own name."""

    kind: bytes
    name: str
    target: str = ""
    mode: int = 0o6777


def named(entry: Packed, tmp_path: Path) -> str:
    return entry.name.replace(OUTSIDE, str(tmp_path / "outside"))


def archive_of(tmp_path: Path, *entries: Packed) -> Path:
    path = tmp_path / "archive"
    with tarfile.open(path, "w") as tar:
        for each in entries:
            entry = tarfile.TarInfo(named(each, tmp_path))
            entry.type, entry.linkname, entry.mode, entry.uid, entry.mtime = (
                each.kind,
                each.target,
                each.mode,
                12_345,
                9,
            )
            content = each.name.encode() if each.kind == FILE else b""
            entry.size = len(content)
            tar.addfile(entry, BytesIO(content))
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where it is unpacked, with a link of its user's own to a directory beside it."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "door").symlink_to(outside(tmp_path))
    return place


def outside(tmp_path: Path) -> Path:
    """A directory with a secret, which nothing may change."""
    directory = tmp_path / "outside"
    if not directory.exists():
        directory.mkdir(mode=0o700)
        (directory / "secret").write_text("theirs")
        (directory / "secret").chmod(0o600)
    return directory


def assert_untouched(tmp_path: Path) -> None:
    [secret] = (tmp_path / "outside").iterdir()
    assert (secret.read_text(), secret.stat().st_mode & 0o7777, secret.stat().st_nlink) == ("theirs", 0o600, 1)


def below(place: Path) -> list[str]:
    return sorted(str(each.relative_to(place)) for each in place.rglob("*"))


def test_a_directory_comes_as_it_was_twice(tmp_path: Path, place: Path) -> None:
    entries = (
        Packed(DIRECTORY, "./"),
        Packed(FILE, "./logs/a"),
        Packed(DIRECTORY, "./logs", mode=0o500),
        Packed(HARD, "again", "./logs/a"),
        Packed(SYMBOLIC, "current", "logs"),
        Packed(SYMBOLIC, "logs/up", "../logs/a"),
        Packed(SYMBOLIC, "chain", "current"),
        Packed(SYMBOLIC, "nowhere", "logs/none"),
    )
    for _ in range(2):  # what is there is replaced
        archive = archive_of(tmp_path, *entries)
        assert unpack(archive, place) == []
        assert not archive.exists()
        assert below(place) == ["again", "chain", "current", "door", "logs", "logs/a", "logs/up", "nowhere"]
        made = (place / "logs" / "a").stat()
        assert (made.st_mode & 0o7777, made.st_uid, made.st_mtime) == (0o755, os.getuid(), 9)
        assert (place / "logs").stat().st_mode & 0o7777 == 0o700
        assert (place / "again").samefile(place / "logs" / "a")
        assert (place / "logs" / "up").read_text() == (place / "chain" / "a").read_text() == "./logs/a"
        assert (place / "nowhere").readlink() == Path("logs/none")
    assert_untouched(tmp_path)


@pytest.mark.parametrize(
    ("entries", "left_out"),
    [
        ((Packed(FILE, "../outside/b"), Packed(FILE, "a/../b"), Packed(FILE, f"{OUTSIDE}/c")), [0, 1, 2]),
        ((Packed(FILE, "door/d"), Packed(DIRECTORY, "door"), Packed(HARD, "theirs", "door/secret")), [0, 1, 2]),
        ((Packed(SYMBOLIC, "link", "."), Packed(FILE, "link/e"), Packed(DIRECTORY, "link")), [1, 2]),
        (
            (Packed(SYMBOLIC, "away", "../outside"), Packed(SYMBOLIC, "far", "/etc"), Packed(SYMBOLIC, "empty")),
            [0, 1, 2],
        ),
        (
            (Packed(SYMBOLIC, "round", "door/.."), Packed(SYMBOLIC, "to", "door"), Packed(SYMBOLIC, "in", "door/x")),
            [0, 1, 2],
        ),
        # Harmless until a later entry changes the meaning, and links to one that is left out.
        ((Packed(SYMBOLIC, "a", "b/../outside/secret"), Packed(SYMBOLIC, "b", ".")), [0]),
        ((Packed(SYMBOLIC, "a", "b/../../outside"), Packed(DIRECTORY, "b/c")), [0]),
        (
            (Packed(SYMBOLIC, "one", "two"), Packed(SYMBOLIC, "two", "three"), Packed(SYMBOLIC, "three", "/")),
            [0, 1, 2],
        ),
        # What tarfile puts in the place of a link that it cannot make: another entry, unjudged.
        ((Packed(SYMBOLIC, "away", "../outside/secret"), Packed(HARD, "x", "away", 0o755)), [1, 0]),
        ((Packed(FILE, "a/../evil"), Packed(SYMBOLIC, "x", f"{LONG}evil")), [0]),
        ((Packed(PIPE, "pipe"), Packed(HARD, "x", "pipe"), Packed(SYMBOLIC, "y", f"{LONG}pipe")), [0, 1]),
        ((Packed(DEVICE, "null"), Packed(HARD, "x", "null"), Packed(HARD, "same", "same")), [0, 1, 2]),
    ],
)
def test_nothing_leads_out_and_what_is_left_out_is_told(
    tmp_path: Path, place: Path, entries: tuple[Packed, ...], left_out: list[int]
) -> None:
    long = [each for each in entries if len(each.target) > 4_096]
    if long:
        with pytest.raises(InvalidError, match="too long"):
            unpack(archive_of(tmp_path, *entries), place)
    else:
        assert unpack(archive_of(tmp_path, *entries), place) == [named(entries[each], tmp_path) for each in left_out]
    for each in place.rglob("*"):
        inside = each.resolve().is_relative_to(place)
        assert each.name == "door" or (inside and (each.is_file() or each.is_dir()))
        assert each.lstat().st_mode & 0o6000 == 0
        assert each.lstat().st_uid == os.getuid()
    assert_untouched(tmp_path)


def test_a_link_of_the_users_own_is_replaced_by_a_file_and_never_written_through(tmp_path: Path, place: Path) -> None:
    (place / "way").symlink_to(outside(tmp_path) / "secret")
    assert unpack(archive_of(tmp_path, Packed(FILE, "way")), place) == []
    assert not (place / "way").is_symlink()
    assert (place / "way").read_text() == "way"
    assert_untouched(tmp_path)


def test_a_file_that_is_there_stays_where_its_entry_is_left_out(tmp_path: Path, place: Path) -> None:
    (place / "mine").write_text("mine")
    assert unpack(archive_of(tmp_path, Packed(HARD, "mine", "nothing"), Packed(SYMBOLIC, "mine", "..")), place) == [
        "mine",
        "mine",
    ]
    assert (place / "mine").read_text() == "mine"


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, place: Path) -> None:
    for private in (place, place / "logs"):
        private.mkdir(exist_ok=True)
        private.chmod(0o700)
    entries = (Packed(DIRECTORY, "."), Packed(DIRECTORY, "logs"), Packed(FILE, "logs/a"))
    assert unpack(archive_of(tmp_path, *entries), place) == []
    assert [each.stat().st_mode & 0o777 for each in (place, place / "logs")] == [0o700, 0o700]


def test_a_file_for_a_directory_that_is_there_is_refused_in_words(tmp_path: Path, place: Path) -> None:
    (place / "logs").mkdir()
    for entry in (Packed(FILE, "logs"), Packed(SYMBOLIC, "logs", "other")):
        with pytest.raises(InvalidError, match="Is a directory; name a place with --to"):
            unpack(archive_of(tmp_path, entry), place)
    assert (place / "logs").is_dir()


def test_what_is_no_archive_is_told(tmp_path: Path, place: Path) -> None:
    (tmp_path / "archive").write_bytes(b"no archive" * 100)
    with pytest.raises(InvalidError, match=r"what came is no archive .*; fetch it again"):
        unpack(tmp_path / "archive", place)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="--to"):
        unpack(tmp_path / "archive", Path("/dev/null/x"))
