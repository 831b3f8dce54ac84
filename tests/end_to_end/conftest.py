"""A lab for all tests on a real grid that run in this process, one after the other."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from koala.lab import Lab
from tests.support.real_grid import RealGrid, real_grid, running_lab


@pytest.fixture(scope="session")
def the_lab() -> Iterator[Lab]:
    """Three clusters."""
    with running_lab(nodes=2, processors_per_node=4, slots=8, gridftp=True) as lab:
        yield lab


@pytest.fixture(scope="session")
def shared_grid(the_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGrid]:
    """A daemon for all tests that do not end it."""
    directory = tmp_path_factory.mktemp("daemon")
    with real_grid(the_lab, directory, barrier_timeout_s=120, answer_timeout_s=20, cooldown_s=5) as grid:
        yield grid


@pytest.fixture
def grid(shared_grid: RealGrid) -> Iterator[RealGrid]:
    """The shared grid, idle before and after."""
    yield shared_grid
    shared_grid.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its grid looked like then. One that has a grid of its own tells that itself."""
    report = yield
    if call.when == "call" and report.failed and isinstance(item, pytest.Function):
        grids = {id(each): each for each in item.funcargs.values() if isinstance(each, RealGrid)}
        report.sections += [("the grid", each.state()) for each in grids.values()]
    return report
