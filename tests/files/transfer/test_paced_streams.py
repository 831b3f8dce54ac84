"""Streams that keep a limit of speed: what they print by which second, on a clock that is played.

``sleep`` is played: it notes that it began, and a moment after bytes were asked for that it is over, which is a
second of this clock. ``head`` is the real one behind one that notes how many seconds were over when it was asked for
how many bytes.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.files.transfer.methods import paced_reader

DATA = random.Random(5).randbytes(10_000)
WAIT_S = 120.0
_SLEEP = """#!/bin/sh
cd {notes} || exit
echo >>began
mine=$(wc -l <began)
tries=500
while [ "$(wc -l <asked)" -lt $mine ] && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    {sleep} 0.01
done
{sleep} 0.05
echo >>over
"""
# A head whose second never begins beside it gives up, and notes nothing.
_HEAD = """#!/bin/sh
cd {notes} || exit
mine=$(($(wc -l <asked) + 1))
tries=500
while [ "$(wc -l <began)" -lt $mine ]; do
    tries=$((tries - 1))
    if [ $tries -eq 0 ]; then exit 1; fi
    {sleep} 0.01
done
echo "$(wc -l <over) $2" >>asked
exec {head} "$@"
"""


class PlayedClock:
    """Programs for the front of a PATH, and what they noted."""

    def __init__(self, root: Path) -> None:
        self.notes = root / "notes"
        self.programs = root / "programs"
        for directory in (self.notes, self.programs):
            directory.mkdir()
        for name in ("began", "over", "asked"):
            (self.notes / name).touch()
        real = {name: shutil.which(name) for name in ("sleep", "head")}
        self._program("sleep", _SLEEP.format(notes=self.notes, **real))
        self._program("head", _HEAD.format(notes=self.notes, **real))

    def _program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    @contextlib.contextmanager
    def running(self, text: str) -> Iterator[subprocess.Popen[bytes]]:
        """A shell that runs a text, to the end of the test at the most."""
        path = f"{self.programs}:/usr/bin:/bin"
        with subprocess.Popen(["sh", "-c", text], env={"PATH": path}, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, text: str) -> bytes:
        """What a text prints."""
        with self.running(text) as process:
            printed, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        return printed

    def asked(self) -> list[tuple[int, int]]:
        """How many seconds were over when how many bytes were asked for, in this order."""
        lines = (self.notes / "asked").read_text().splitlines()
        return [(int(seconds), int(size)) for seconds, size in map(str.split, lines)]


@pytest.fixture
def clock(tmp_path: Path) -> PlayedClock:
    return PlayedClock(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize(
    ("offset", "size", "rate"),
    [(0, 10_000, 3_000.0), (0, 9_000, 3_000.0), (17, 4_000, 1_333.4), (9_999, 1, 0.5), (0, 10_000, 1e9), (5, 0, 1.0)],
)
def test_no_more_is_printed_by_any_second_than_the_limit_allows(
    clock: PlayedClock, file: Path, offset: int, size: int, rate: float
) -> None:
    assert clock.run(paced_reader(str(file), offset, size, rate)) == DATA[offset : offset + size]
    printed, most = 0, max(1.0, rate)
    for seconds, asked in clock.asked():
        printed += asked
        assert printed <= (seconds + 1) * most
    assert printed == size


def test_the_limit_is_reached_with_one_piece_for_each_second(clock: PlayedClock, file: Path) -> None:
    clock.run(paced_reader(str(file), 0, 10_000, 2_500.0))
    assert [size for _, size in clock.asked()] == [2_500] * 4


def test_a_stream_that_nobody_reads_any_more_ends(clock: PlayedClock, file: Path) -> None:
    with clock.running(paced_reader(str(file), 0, 10_000, 10.0)) as process:
        assert process.stdout is not None
        assert process.stdout.read(10) == DATA[:10]
        process.stdout.close()
        assert process.wait(WAIT_S) != 0
    assert len(clock.asked()) < 1_000


def test_a_file_that_goes_away_ends_its_stream(clock: PlayedClock, file: Path) -> None:
    with clock.running(paced_reader(str(file), 0, 10_000, 10.0)) as process:
        assert process.stdout is not None
        file.unlink()
        process.communicate(timeout=WAIT_S)
        assert process.returncode != 0
    assert len(clock.asked()) < 1_000
