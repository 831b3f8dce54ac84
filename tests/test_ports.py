"""A block of ports is kept by one test process at a time, and given back when that one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.ports import keep_block

ROOT = Path(__file__).resolve().parent.parent
# No lab has its ports here.
FIRST = 9_800
KEEP = f"from tests.support.ports import keep_block; print(keep_block({FIRST}), flush=True); input()"


def test_a_block_of_ports_is_kept_until_its_process_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEP], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not keep_block(FIRST)
        other.kill()
    assert keep_block(FIRST)
    assert keep_block(FIRST)
