"""Files of this machine, gathered for a job: directories whole, modes without setuid, clear words for the rest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from koala.client.errors import InvalidError
from koala.client.parcel import gather
from koala.model.travelling import TRAVELLING_FILES_MAX, TravellingFile


def test_a_directory_travels_whole_with_its_links_and_without_setuid(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.write_bytes(b"program")
    run.chmod(0o4755)
    config = tmp_path / "config"
    (config / "empty").mkdir(parents=True)
    (config / "link").symlink_to("empty")
    config.chmod(0o755)
    (config / "empty").chmod(0o755)
    parcel = gather([run, f"{config}/"])
    checksum = hashlib.sha256(b"program").hexdigest()
    assert {each.path: each for each in parcel.files} == {
        "run": TravellingFile(path="run", size_bytes=7, checksum=checksum, mode=0o755),
        "config": TravellingFile(path="config", directory=True, mode=0o755),
        "config/empty": TravellingFile(path="config/empty", directory=True, mode=0o755),
        "config/link": TravellingFile(path="config/link", link="empty"),
    }
    assert parcel.sources == {checksum: run}
    assert gather(()).listed is None


def test_what_cannot_travel_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="No such file"):
        gather([tmp_path / "absent"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidError, match="not a file, directory or link"):
        gather([tmp_path / "pipe"])
    away = tmp_path / "away"
    away.mkdir()
    (away / "out").symlink_to("../..")
    with pytest.raises(InvalidError, match="leads out"):
        gather([away])
    many = tmp_path / "many"
    many.mkdir()
    for number in range(TRAVELLING_FILES_MAX):
        (many / str(number)).touch()
    with pytest.raises(InvalidError, match="TRAVELLING_FILES_MAX"):
        gather([many])
    with pytest.raises(InvalidError, match="twice"):
        gather({"x": many / "1", "x/": many / "2"})
