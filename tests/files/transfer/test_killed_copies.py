"""A copy whose process is killed goes on where it was, if the file is still the same; a full disk leaves nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.file_world import World, some_bytes
from tests.support.paths import SUPPORT
from tests.support.warm_koala import PipedProgram

COPIER = SUPPORT / "killed_copier.py"
SIZE = 400_000
RATE = 1_000_000.0
KILLS = 3


def copier(root: Path, *more: object) -> PipedProgram:
    return PipedProgram(COPIER, str(root), "data", *map(str, more))


def killed_beyond(root: Path, size: int) -> int:
    """Let a process copy until so many bytes are there, where it stands still, and kill it; gives the bytes it spoke
    of last."""
    with copier(root, RATE, f"--stop={size}") as process:
        done = 0
        for line in process.stdout:
            done = int(line)
            if done >= size:
                process.kill()
                break
    return done


def finished(root: Path) -> tuple[int, str]:
    with copier(root, 1e9) as process:
        _, copied, path = process.stdout.read().splitlines()[-1].split()
    return int(copied), path


@pytest.mark.parametrize("seed", [1, 2])
def test_a_copy_killed_again_and_again_is_never_begun_anew(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path)
    data = some_bytes(SIZE, seed)
    world.put("data", data)
    points = sorted(random.Random(seed).sample(range(1, SIZE // 2), KILLS))
    seen = 0
    for point in points:
        done = killed_beyond(tmp_path, point)
        assert done >= seen
        seen = done
    copied, path = finished(tmp_path)
    assert world.bytes_at(path) == data
    assert copied <= SIZE - seen


def test_a_copy_of_a_file_that_has_changed_since_the_kill_is_begun_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put("data", some_bytes(SIZE, 1))
    order = world.order("data")
    assert killed_beyond(tmp_path, SIZE // 3) > 0
    # The same bytes with another time: the part would be right, but nothing says so.
    world.put("data", some_bytes(SIZE, 1))
    copied, path = finished(tmp_path)
    assert copied == SIZE
    assert world.bytes_at(path) == some_bytes(SIZE, 1)
    assert world.order("data") == order


def test_a_part_that_was_damaged_since_the_kill_is_noticed_and_copied_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    data = some_bytes(SIZE, 1)
    world.put("data", data)
    done = killed_beyond(tmp_path, SIZE // 3)
    (part,) = (tmp_path / "leiden" / "copies").glob("*/part")
    with part.open("r+b") as file:
        file.write(bytes([data[0] ^ 1]))
    copied, path = finished(tmp_path)
    assert world.bytes_at(path) == data
    assert SIZE < copied <= 2 * SIZE - done


def test_a_target_without_room_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    World(tmp_path).put("data", some_bytes(SIZE))
    with copier(tmp_path, 1e9, SIZE // 2) as process:
        *_, error, left = process.stdout.read().splitlines()
    assert error.startswith(f"NoSpaceError: file 'data' at leiden: no room for its {SIZE} bytes (")
    assert error.endswith("make room at this site")
    assert left == "left: []"
