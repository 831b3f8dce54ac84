"""Which URLs are read at all: those of other machines, and none that leads to the files of this one."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from koala.files import FilesError
from koala.files.sources import REMOTE_SCHEMES, UrlSource

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
