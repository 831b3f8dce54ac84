"""Lists of files that travel: what no list may hold, each with an answer that names it."""

from __future__ import annotations

import pytest

from koala.model.travelling import (
    TRAVELLING_BYTES_MAX,
    TRAVELLING_FILES_MAX,
    TravellingError,
    TravellingFile,
    check_travelling,
    named_path,
    read_manifest,
    roots,
    unsent,
    write_manifest,
)

SUM = "0" * 64


def file(path: str, size_bytes: int = 1, mode: int = 0o755, checksum: str = SUM) -> TravellingFile:
    return TravellingFile(path=path, size_bytes=size_bytes, checksum=checksum, mode=mode)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([file("/etc/passwd")], "plain path"),
        ([file("../x")], "plain path"),
        ([file("a/./b")], "plain path"),
        ([file("a\nb")], "cannot be printed"),
        ([file("x" * 256)], "TRAVELLING_PATH_CHARACTERS_MAX"),
        ([file("d/" + "é" * 128)], "NAME_BYTES_MAX"),
        ([file(".koala-files")], "Koala uses itself"),
        ([file("x", mode=0o4755)], "setuid"),
        ([file("x", checksum="beef")], "SHA-256"),
        ([file("x", size_bytes=-1)], "TRAVELLING_BYTES_MAX"),
        ([file("x"), file("x")], "twice"),
        ([file("x"), file("x/y")], "not a directory"),
        ([file("x", size_bytes=TRAVELLING_BYTES_MAX), file("y")], "TRAVELLING_BYTES_MAX"),
        ([file(f"f{n}") for n in range(TRAVELLING_FILES_MAX + 1)], "TRAVELLING_FILES_MAX"),
        ([TravellingFile(path="d/x", link="../../etc")], "leads out"),
        ([TravellingFile(path="x", link="/etc/passwd")], "leads out"),
        ([TravellingFile(path="l", link="d"), file("l/x")], "not a directory"),
        ([TravellingFile(path="x")], "was not sent"),
        ([TravellingFile(path="x", directory=True, size_bytes=3)], "leave its size out"),
    ],
)
def test_a_list_that_cannot_be_put_into_a_directory_is_refused(files: list[TravellingFile], said: str) -> None:
    with pytest.raises(TravellingError, match=said):
        check_travelling(files)


def test_a_list_is_read_as_it_was_written_sorted_by_path() -> None:
    files = (file("b/run"), TravellingFile(path="b", directory=True), TravellingFile(path="a", link="b/run"))
    assert read_manifest(write_manifest(files)) == tuple(sorted(files, key=lambda each: each.path))
    with pytest.raises(TravellingError, match="cannot be read"):
        read_manifest('[{"path": 3}]')


def test_names_in_a_description_stay_below_it() -> None:
    assert [named_path(each) for each in ("run", "./run", "config/")] == ["run", "run", "config"]
    for path in ("/run", "..", "../run", "a/../../run", "."):
        with pytest.raises(TravellingError, match="--with"):
            named_path(path)


def test_a_name_is_sent_when_it_or_something_below_it_is() -> None:
    sent = (file("config/a"), file("run"))
    named = [TravellingFile(path=each) for each in ("config", "run", "more")]
    assert unsent(named, sent) == ["more"]
    assert roots(sent) == ("config/a", "run")
    assert roots((*sent, TravellingFile(path="config", directory=True))) == ("config", "run")
