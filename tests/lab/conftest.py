"""One lab for all tests that leave it as they found it, and places for labs of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.lab import Lab, up
from tests.support.lab_making import options_in, taken_down


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two Slurm clusters and a Grid Engine cell, up."""
    with tempfile.TemporaryDirectory() as parent, taken_down(Path(parent) / "lab"):
        yield up(options_in(Path(parent) / "lab"))


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place for a lab of the test's own, with a short path; nothing of it stays."""
    with tempfile.TemporaryDirectory() as parent, taken_down(Path(parent) / "lab"):
        yield Path(parent) / "lab"
