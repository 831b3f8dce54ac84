"""Contents are kept once, only whole and right, never across users, and go when nobody needs them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from koala.files.contents import ContentStore, WrongContentError, WrongOffsetError

DATA = b"#!/bin/sh\necho hello\n"
SUM = hashlib.sha256(DATA).hexdigest()


def opened(root: Path) -> ContentStore:
    store = ContentStore(root / "contents")
    store.open()
    return store


def sent(store: ContentStore, user: str, data: bytes = DATA, now: float = 0.0) -> str:
    checksum = hashlib.sha256(data).hexdigest()
    assert store.append(user, checksum, len(data), 0, data, now) is None
    return checksum


def test_pieces_come_in_order_and_the_same_piece_again_changes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.append("anna", SUM, len(DATA), 0, DATA[:5], 0.0) == 5
    assert store.append("anna", SUM, len(DATA), 0, DATA[:5], 0.0) == 5
    with pytest.raises(WrongOffsetError) as wrong:
        store.append("anna", SUM, len(DATA), 9, DATA[9:], 0.0)
    assert wrong.value.received_bytes == 5
    again = opened(tmp_path)  # as after a kill
    assert again.received_bytes("anna", SUM, len(DATA)) == 5
    assert again.append("anna", SUM, len(DATA), 5, DATA[5:], 0.0) is None
    assert again.path(SUM).read_bytes() == DATA
    assert again.received_bytes("anna", SUM, len(DATA)) is None


def test_an_empty_file_is_a_content_too(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.path(sent(store, "anna", b"")).read_bytes() == b""


def test_a_wrong_checksum_or_size_spoils_nobody_elses_content(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sent(store, "anna")
    with pytest.raises(WrongContentError):
        store.append("bert", SUM, 3, 0, b"bad", 0.0)
    with pytest.raises(WrongOffsetError):
        store.append("bert", SUM, 2, 0, b"bad", 0.0)
    assert store.path(SUM).read_bytes() == DATA
    assert store.refer("anna", {SUM: len(DATA)}, 0.0) == []
    assert store.refer("anna", {SUM: 1}, 0.0) == [SUM]
    assert store.used("bert") == (0, 0)


def test_who_has_not_sent_a_content_cannot_refer_to_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sent(store, "anna")
    assert store.received_bytes("bert", SUM, len(DATA)) == 0
    assert store.refer("bert", {SUM: len(DATA)}, 0.0) == [SUM]
    sent(store, "bert")
    assert store.refer("bert", {SUM: len(DATA)}, 0.0) == []
    assert [each.name for each in (tmp_path / "contents" / "data").iterdir()] == [SUM], "kept once"


def test_a_kill_between_the_mark_and_the_name_loses_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sent(store, "anna")
    part = tmp_path / "contents" / "users" / "=anna" / "parts" / f"{SUM}.{len(DATA)}"
    store.path(SUM).rename(part)
    part.chmod(0o600)
    again = opened(tmp_path)
    assert again.received_bytes("anna", SUM, len(DATA)) == len(DATA)
    assert again.append("anna", SUM, len(DATA), len(DATA), b"", 0.0) is None
    assert again.path(SUM).read_bytes() == DATA


def test_a_kill_before_the_checksum_was_looked_at_loses_nothing_and_the_last_piece_may_come_again(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    assert store.append("anna", SUM, len(DATA), 0, DATA[:5], 0.0) == 5
    part = tmp_path / "contents" / "users" / "=anna" / "parts" / f"{SUM}.{len(DATA)}"
    part.write_bytes(DATA)
    again = opened(tmp_path)
    assert again.append("anna", SUM, len(DATA), 5, DATA[5:], 0.0) is None
    assert again.path(SUM).read_bytes() == DATA
    assert not part.exists()


def test_what_live_jobs_and_the_grace_time_do_not_keep_goes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    other = sent(store, "bert", b"other")
    sent(store, "anna")
    sent(store, "bert", now=50.0)
    store.append("anna", "0" * 64, 10, 0, b"half", 0.0)
    assert store.sweep({"bert": [other]}, 90.0, grace_s=100.0) == []
    assert store.used("anna") == (len(DATA) + 10, 2)
    assert store.sweep({"bert": [other]}, 120.0, grace_s=100.0) == [], "bert's mark is younger"
    assert store.used("anna") == (0, 0)
    assert store.refer("anna", {SUM: len(DATA)}, 120.0) == [SUM]
    assert store.sweep({"bert": [other]}, 200.0, grace_s=100.0) == [SUM]
    assert store.sweep({}, 200.0, grace_s=100.0) == [other]
    assert not list((tmp_path / "contents" / "data").iterdir())
