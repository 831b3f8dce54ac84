"""What ``make soak`` draws, and what it says of a command that fails."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.live_daemon import until
from tests.support.paths import ROOT
from tests.support.soak import LOADERS, Trial, every_turn

# It prints how many processes the soak has beside it.
FAILS = """
import os, pathlib, sys
soak = os.getppid()
print("loaders:", len(pathlib.Path(f"/proc/{soak}/task/{soak}/children").read_text().split()) - 1)
sys.exit(3)
"""


def soaked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The soak for no longer than one round."""
    command = [sys.executable, "-m", "tests.support.soak", "--minutes", "0", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_command_that_fails_is_shown_with_its_output_and_with_what_repeats_it() -> None:
    planted = [sys.executable, "-c", FAILS]
    done = soaked("--", *planted)
    assert done.returncode == 1, done.stderr
    assert f"\nloaders: {LOADERS * len(os.sched_getaffinity(0))}\n" in done.stdout
    _, _, repeat = done.stdout.partition("Commands run: 1. Failed: 1. To repeat them:\n")
    assert shlex.split(repeat) == [sys.executable, "-m", "tests.support.soak", "--minutes", "10", "--", *planted]


def test_a_command_that_passes_leaves_nothing_to_repeat() -> None:
    done = soaked("--", sys.executable, "-c", "print('quiet')")
    assert done.returncode == 0, done.stderr
    assert "quiet\n" not in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "Commands run: 1. Failed: 0"


def test_who_ends_the_soak_interrupts_its_command_and_gets_what_it_found(tmp_path: Path) -> None:
    waits = f"trap 'touch {tmp_path}/tidied; exit 1' INT; touch {tmp_path}/begun; while :; do sleep 0.02; done"
    command = [sys.executable, "-m", "tests.support.soak", "--minutes", "0", "--", "sh", "-c", waits]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: (tmp_path / "begun").exists(), "the command runs")
        process.terminate()
        output, _ = process.communicate(timeout=300)
    assert (tmp_path / "tidied").exists()
    assert output.splitlines()[-1] == "Commands run: 0. Failed: 0"
    assert process.returncode == 0


def test_a_round_draws_each_kind_and_the_next_one_draws_anew() -> None:
    turns = every_turn(random.Random(1))
    first, second = ([turn() for turn in turns] for _ in range(2))
    assert [trial.loaded for trial in first] == [True, False, False, False]
    for one, other in zip(first, second, strict=True):
        assert one.to_repeat() != other.to_repeat()
        named = [word for word in one.command if word.endswith(".py")]
        assert all((ROOT / file).is_file() for file in named)
    _, properties, storms, kills = (trial.to_repeat() for trial in first)
    assert "--hypothesis-profile=random --hypothesis-seed=" in properties
    assert " torture --first " in storms
    assert kills.startswith("KOALA_KILLS_SEED=")


def test_what_repeats_a_command_quotes_what_a_shell_would_read() -> None:
    trial = Trial(["pytest", "a b[::]"], [("SEED", "1 2")])
    assert shlex.split(trial.to_repeat()) == ["SEED=1 2", "pytest", "a b[::]"]
