"""The archive of a job's files: the same list gives the same bytes, and tar makes of it what was sent."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest

from koala.files.bundle import make_bundle
from koala.files.errors import FilesError
from koala.model.travelling import TravellingFile

PROGRAM = b"#!/bin/sh\necho hello\n"
SUM = hashlib.sha256(PROGRAM).hexdigest()
DEEP = "/".join(["d" * 60] * 3) + "/x"
FILES = (
    TravellingFile(path="run", size_bytes=len(PROGRAM), checksum=SUM, mode=0o755),
    TravellingFile(path="empty", directory=True, mode=0o555),
    TravellingFile(path="again", link="run"),
    TravellingFile(path="größe/日本", size_bytes=len(PROGRAM), checksum=SUM),
    TravellingFile(path=DEEP, size_bytes=len(PROGRAM), checksum=SUM, mode=0o444),
)


def test_the_archive_holds_modes_links_and_empty_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarfile.TarFile, "encoding", "ascii")  # as in a locale without UTF-8
    (tmp_path / SUM).write_bytes(PROGRAM)
    one = make_bundle(FILES, tmp_path.joinpath, tmp_path / "one")
    two = make_bundle(FILES[::-1], tmp_path.joinpath, tmp_path / "two")
    assert (one.checksum, one.size_bytes) == (two.checksum, two.size_bytes)
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["tar", "-xmof", str(one.path)], cwd=work, check=True)
    assert subprocess.run([str(work / "again")], capture_output=True, check=True).stdout == b"hello\n"
    assert (work / "empty").is_dir()
    assert (work / DEEP).read_bytes() == PROGRAM
    assert (work / "größe" / "日本").read_bytes() == PROGRAM
    assert (work / "run").stat().st_mode & 0o7777 & ~0o022 == 0o755


def test_a_content_that_is_gone_is_told_with_its_file_and_leaves_no_archive(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match=r"'run'.*submit the job again"):
        make_bundle(FILES[:1], tmp_path.joinpath, tmp_path / "one")
    assert not list(tmp_path.iterdir())
