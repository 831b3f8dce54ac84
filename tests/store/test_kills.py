"""Killed at any moment, the store has every batch that it acknowledged, and no half of one or of its records."""

from __future__ import annotations

import time
from random import Random

import pytest

from tests.support.paths import SUPPORT
from tests.support.store_samples import OpenStore
from tests.support.warm_koala import PipedProgram
from tests.support.whole_batches import check_whole

KILLS = {"sqlite": 12, "postgresql": 8}
ENTRIES = 5


def acknowledged_until_killed(url: str, random: Random) -> int:
    """The last number that a child wrote before it was killed, at a random moment after its first."""
    with PipedProgram(SUPPORT / "recording_child.py", url, str(ENTRIES)) as child:
        for _ in range(random.randint(1, 12)):
            first = child.stdout.readline()
            assert first, "the child ended by itself"
        time.sleep(random.uniform(0.0, 0.02))
        child.kill()
        rest = child.stdout.read()
    # A line that was being written when the end came is no acknowledgement.
    return int((first + rest[: rest.rfind("\n") + 1]).split()[-1])


def test_every_acknowledged_batch_survives_and_no_half_batch_is_left(
    url: str, request: pytest.FixtureRequest, open_store: OpenStore
) -> None:
    random = Random(20)
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    for _ in range(KILLS[kind]):
        acknowledged = acknowledged_until_killed(url, random)
        store = open_store(url)
        kept = check_whole(store, ENTRIES)
        store.close()
        assert acknowledged <= kept <= acknowledged + 1
