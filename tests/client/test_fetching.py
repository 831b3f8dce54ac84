"""Files on their way here: small ones many at a time, each verified, none twice, and none that keeps others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import httpx
import pytest

from koala.client import Client, UnreachableError
from koala.client.fetching import SMALL_BYTES_MAX
from koala.model.api import DOWNLOAD_FILES_MAX, FileInfo
from tests.support.ports import free_port

SERVER = f"http://127.0.0.1:{free_port()}"


class Catalogue:
    """A daemon that has files, and answers for no more than ``at_once`` of them."""

    def __init__(self, files: dict[str, bytes], *, at_once: int = DOWNLOAD_FILES_MAX) -> None:
        self.files = files
        self.at_once = at_once
        self.problems: dict[str, str] = {}
        self.asked: list[list[str]] = []
        self.pieces: list[str] = []
        self.away_after: int | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            name = request.url.path.removeprefix("/v1/file-contents/")
            self.pieces.append(name)
            return httpx.Response(200, content=self.files[name][int(request.url.params["offset"]) :])
        if self.away_after is not None and len(self.asked) >= self.away_after:
            raise httpx.ConnectError("connection refused")
        names = json.loads(request.content)["names"][: self.at_once]
        self.asked.append(names)
        read = {name: b"" if name in self.problems else self.files[name] for name in names}
        head = [
            {"name": name, "size_bytes": len(data), "problem": self.problems.get(name, "")}
            for name, data in read.items()
        ]
        return httpx.Response(200, content=json.dumps(head).encode() + b"\n" + b"".join(read.values()))

    def client(self) -> Client:
        return Client(SERVER, token="koala_x", transport=httpx.MockTransport(self), patience_s=0.0)  # noqa: S106

    def wanted(self, home: Path) -> list[tuple[FileInfo, Path]]:
        return [
            (
                FileInfo(name=name, size_bytes=len(data), checksum=hashlib.sha256(data).hexdigest(), replicas=[]),
                home / "deep" / name,
            )
            for name, data in self.files.items()
        ]


def small(count: int) -> dict[str, bytes]:
    return {f"f{number}": f"{number}\n".encode() for number in range(count)}


def test_small_files_come_many_with_a_call_and_only_those_that_are_not_here(tmp_path: Path) -> None:
    catalogue = Catalogue(small(DOWNLOAD_FILES_MAX + 3))
    wanted = catalogue.wanted(tmp_path)
    with catalogue.client() as client:
        assert client.fetch_files(wanted) == {}
        assert [len(names) for names in catalogue.asked] == [DOWNLOAD_FILES_MAX, 3]
        assert {path.name: path.read_bytes() for _, path in wanted} == catalogue.files
        wanted[4][1].write_bytes(b"X\n")
        wanted[5][1].unlink()
        seen: list[tuple[int, int]] = []
        assert client.fetch_files(wanted, progress=lambda here, total: seen.append((here, total))) == {}
    assert catalogue.asked[2:] == [["f4", "f5"]]
    total = sum(map(len, catalogue.files.values()))
    assert seen[-1] == (total, total)
    assert sorted(each.name for each in (tmp_path / "deep").iterdir()) == sorted(catalogue.files)


def test_an_answer_that_has_no_room_for_all_is_asked_for_again(tmp_path: Path) -> None:
    catalogue = Catalogue(small(7), at_once=3)
    with catalogue.client() as client:
        assert client.fetch_files(catalogue.wanted(tmp_path)) == {}
    assert catalogue.asked == [["f0", "f1", "f2"], ["f3", "f4", "f5"], ["f6"]]


def test_a_large_file_comes_in_pieces_beside_the_small_ones(tmp_path: Path) -> None:
    catalogue = Catalogue({**small(2), "large": b"x" * (SMALL_BYTES_MAX + 1)})
    wanted = catalogue.wanted(tmp_path)
    with catalogue.client() as client:
        assert client.fetch_files(wanted) == {}
    assert (catalogue.pieces, catalogue.asked) == (["large"], [["f0", "f1"]])
    assert wanted[2][1].read_bytes() == catalogue.files["large"]


def test_what_does_not_come_or_comes_wrong_is_named_and_keeps_no_other(tmp_path: Path) -> None:
    catalogue = Catalogue(small(4))
    wanted = catalogue.wanted(tmp_path)
    catalogue.problems["f1"] = "A: the replica is not there"
    catalogue.files["f2"] = b"other"
    with catalogue.client() as client:
        problems = client.fetch_files(wanted)
    assert problems == {
        wanted[1][1]: "A: the replica is not there",
        wanted[2][1]: "its content differs from the catalogue; fetch it again",
    }
    assert [path.exists() for _, path in wanted] == [True, False, False, True]


def test_what_came_before_an_interruption_is_not_asked_for_again(tmp_path: Path) -> None:
    catalogue = Catalogue(small(6), at_once=2)
    catalogue.away_after = 2
    wanted = catalogue.wanted(tmp_path)
    with catalogue.client() as client:
        with pytest.raises(UnreachableError):
            client.fetch_files(wanted)
        catalogue.away_after = None
        assert client.fetch_files(wanted) == {}
    assert catalogue.asked == [["f0", "f1"], ["f2", "f3"], ["f4", "f5"]]
