"""A database and a state directory belong together: with another one a job would run twice, or be forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.daemon import database_check
from koala.daemon.database_check import IDENTITY_NAME, check_database
from koala.daemon.options import StartError
from koala.store import Store
from tests.support.store_samples import numbered_batch


def opened(state: Path, url: str, *, accepted: bool = False, jobs: bool = False) -> None:
    """One start with this directory and this database; with ``jobs`` something is put on record."""
    state.mkdir(exist_ok=True)
    store = Store.open(url)
    try:
        check_database(state, store, accepted=accepted)
        if jobs:
            store.record(numbered_batch(1))
    finally:
        store.close()


def test_a_database_is_not_used_with_another_state_directory(tmp_path: Path, database: str) -> None:
    opened(tmp_path / "one", database, jobs=True)
    opened(tmp_path / "one", database)
    with pytest.raises(StartError, match=r"belongs to the state directory .*/one on .*--accept database"):
        opened(tmp_path / "two", database)
    assert not (tmp_path / "two" / IDENTITY_NAME).exists()
    opened(tmp_path / "two", database, accepted=True)
    opened(tmp_path / "two", database)
    with pytest.raises(StartError, match=r"belongs to the state directory .*/two"):
        opened(tmp_path / "one", database)


def test_a_directory_that_was_moved_keeps_its_database(tmp_path: Path, database: str) -> None:
    opened(tmp_path / "one", database, jobs=True)
    (tmp_path / "one").rename(tmp_path / "moved")
    opened(tmp_path / "moved", database)


def test_an_empty_database_in_place_of_the_one_that_was_used_is_noticed(tmp_path: Path, database: str) -> None:
    file = tmp_path / "koala.db"
    opened(tmp_path / "one", f"sqlite:///{file}", jobs=True)
    for gone in tmp_path.glob("koala.db*"):
        gone.unlink()
    with pytest.raises(StartError, match=r"koala.db is empty.*was used with .*koala.db.*start afresh"):
        opened(tmp_path / "one", f"sqlite:///{file}")
    file.write_bytes(b"")
    with pytest.raises(StartError, match="is empty"):
        opened(tmp_path / "one", f"sqlite:///{file}")
    with pytest.raises(StartError, match=r"is empty.*was used with .*koala.db"):
        opened(tmp_path / "one", database)
    opened(tmp_path / "one", database, accepted=True, jobs=True)
    opened(tmp_path / "one", database)


def test_a_database_of_before_is_taken_for_its_own(tmp_path: Path, database: str) -> None:
    store = Store.open(database)
    store.record(numbered_batch(1))
    store.close()
    opened(tmp_path / "one", database)
    with pytest.raises(StartError, match="belongs to"):
        opened(tmp_path / "two", database)


def test_an_identity_that_cannot_be_read_is_told(tmp_path: Path, database: str) -> None:
    opened(tmp_path / "one", database)
    (tmp_path / "one" / IDENTITY_NAME).write_text("{")
    with pytest.raises(StartError, match=r"identity cannot be read"):
        opened(tmp_path / "one", database)


@pytest.mark.parametrize("step", ["give_to", "write_whole"])
def test_a_first_start_that_ended_before_the_two_were_tied_is_begun_again(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def give_to(*_: object) -> None:
        raise KeyboardInterrupt

    def write_whole(path: Path, data: bytes) -> None:
        if path.exists():
            raise KeyboardInterrupt
        path.write_bytes(data)

    with monkeypatch.context() as killed:
        if step == "give_to":
            killed.setattr(Store, "give_to", give_to)
        else:
            killed.setattr(database_check, "write_whole", write_whole)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "one", database)
    opened(tmp_path / "one", database)
    with pytest.raises(StartError, match="is empty"):
        opened(tmp_path / "one", f"sqlite:///{tmp_path / 'other.db'}")
