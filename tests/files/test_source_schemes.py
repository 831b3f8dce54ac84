"""Which URLs are read at all: those of other machines, and none that leads to the files of this one."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import pytest

from koala.files import FilesError
from koala.files.sources import REMOTE_SCHEMES, WRITABLE_SCHEMES, UrlSource, UrlTarget, is_writable

fsspec: Any = importlib.import_module("fsspec")
KNOWN: list[str] = sorted(fsspec.available_protocols())


@pytest.mark.parametrize("scheme", [each for each in KNOWN if each not in REMOTE_SCHEMES])
def test_a_scheme_that_is_not_of_a_remote_server_is_refused_before_anything_is_opened(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(url: str) -> None:
        raise AssertionError(f"{url} was opened")

    monkeypatch.setattr(fsspec.core, "url_to_fs", opened)
    with pytest.raises(FilesError, match="is not read as a URL; name one with one of the schemes http, https"):
        UrlSource("data", "west", f"{scheme}://etc/passwd")


@pytest.mark.parametrize(
    "url", ["/etc/passwd", "etc/passwd", "FILE:///etc/passwd", "://x", "zip://a::file:///b.zip", "http::file:///etc"]
)
def test_what_would_lead_to_a_local_path_by_another_way_is_refused(url: str) -> None:
    with pytest.raises(FilesError, match="is not read as a URL"):
        UrlSource("data", "west", url)


def test_every_remote_scheme_is_one_that_fsspec_knows() -> None:
    assert set(REMOTE_SCHEMES) <= set(KNOWN)
    assert {"zip", "tar", "file", "local", "reference", "dir"}.isdisjoint(REMOTE_SCHEMES)


def test_outputs_are_written_to_other_machines_alone() -> None:
    assert set(WRITABLE_SCHEMES) < set(REMOTE_SCHEMES)
    assert {"memory", "http", "https"}.isdisjoint(WRITABLE_SCHEMES)
    assert not is_writable("memory://shelf/x")
    assert not is_writable("s3://zip://x::memory://y")
    with pytest.raises(FilesError, match="not written"):
        UrlTarget("x", "delft", "memory://shelf/x", threading.Lock())


def test_what_is_given_up_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koala.files.sources.WRITABLE_SCHEMES", ("memory",))
    shelf: Any = importlib.import_module("fsspec").filesystem("memory")
    path, url = "/given-up/a[1]", "memory://given-up/a[1]"
    shelf.pipe_file(path, b"before")
    target = UrlTarget("x", "delft", url, threading.Lock())
    target.write(b"half")
    target.give_up()
    with pytest.raises(FilesError, match="given up"):
        target.finish(4)
    assert shelf.cat_file(path) == b"before"
    target = UrlTarget("x", "delft", url, threading.Lock())
    target.write(b"whole")
    target.finish(5)
    target.give_up()
    assert shelf.cat_file(path) == b"whole"
    assert shelf.ls("/given-up", detail=False) == [path]


def test_a_server_that_replaces_nothing_keeps_what_was_there_until_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koala.files.sources.WRITABLE_SCHEMES", ("memory",))
    shelf: Any = importlib.import_module("fsspec").filesystem("memory")
    shelf.pipe_file("/strict/a", b"before")
    copy = shelf.cp_file

    def strict(old: str, new: str) -> None:
        if shelf.exists(new):
            raise FileExistsError(new)
        copy(old, new)

    monkeypatch.setattr(shelf, "cp_file", strict)
    target = UrlTarget("x", "delft", "memory://strict/a", threading.Lock())
    target.write(b"whole")
    target.finish(5)
    assert shelf.cat_file("/strict/a") == b"whole"
    assert shelf.ls("/strict", detail=False) == ["/strict/a"]
