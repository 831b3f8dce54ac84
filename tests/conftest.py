"""What every test run needs, and how several processes share the tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support.forked_workers import fork_workers

# Whether a property holds does not depend on how fast the machine finds out. Every run draws the same examples, so a
# change is judged by what it changes, and the last examples seldom show what the first do not;
# ``--hypothesis-profile=random`` draws others, and more of them, to search on.
settings.register_profile(
    "koala",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    print_blob=True,
    max_examples=40,
)
settings.register_profile("random", settings.get_profile("koala"), derandomize=False, max_examples=100)
settings.load_profile("koala")

# Beyond one for each processor: tests of daemons, clusters and browsers mostly wait for them.
WORKERS_MORE = 6
# Its tests take longest, so they begin first. Most share a lab: two groups that take about as long, with a lab each.
END_TO_END = "tests/end_to_end/"
OWN_CLUSTER = ("test_accounting.py",)
SECOND_LAB = ("test_local_users.py", "test_reservations.py", "test_ssh.py")
# The other files that take longest, those that wait and those that compute in turn. They begin early: one that began
# last would have one process run alone at the end.
LONG = (
    "tests/policies/test_compiled.py",
    "tests/cli/demo/test_live.py",
    "tests/sites/batch/slurm/test_resources_live.py",
    "tests/daemon/dashboard/test_browser.py",
    "tests/sites/batch/grid_engine/test_site.py",
    "tests/study/frame/test_dask_run.py",
    "tests/store/test_failures.py",
    "tests/docs/test_docs.py",
    "tests/daemon/engine/test_quarantine.py",
    "tests/daemon/engine/test_record.py",
    "tests/files/transfer/test_rsync.py",
    "tests/simulator/torture/test_torture.py",
    "tests/daemon/engine/test_sites.py",
    "tests/daemon/api/test_document.py",
    "tests/cli/daemon/test_background.py",
    "tests/lab/test_wide_area.py",
    "tests/store/test_creation.py",
    "papers/tests/live2006/test_lab.py",
    "tests/store/test_threads.py",
    "tests/sites/batch/slurm/test_site.py",
    "tests/runners/test_several_nodes.py",
    "tests/simulator/kernels/test_plain.py",
    "tests/daemon/perform/test_site_worker.py",
    "tests/daemon/engine/test_thousand_submissions.py",
    "tests/runners/test_traffic.py",
)
# Tests make and drop much: the collector of garbage looks less often than it would by itself.
COLLECTED_AFTER = (20_000, 20, 20)
# Its tests share one start of mpiexec.
ONE_CREW = "tests/examples/"


def pytest_configure(config: pytest.Config) -> None:
    """A run that a shell started in the background ignores Ctrl-C, and so would the programs that tests interrupt.
    Processes that share the tests are forked from one that has imported them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    fork_workers(config, koala=True)


def draw_no_constants_of_the_source() -> None:
    """By itself hypothesis also draws constants that it finds in the modules that are loaded. It would read all of
    Koala for that in every process, and examples would differ with any constant there, and between a run of all tests
    and one of a few. To search, one draws them, too. No setting of hypothesis leaves them out, and a backend of one's
    own would draw everything in another way, so an internal function is replaced."""
    none = Constants()
    providers._get_local_constants = lambda: none


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end, so the collector of garbage does not look at it again and again."""
    if settings.get_current_profile_name() == "koala":
        draw_no_constants_of_the_source()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """What ``-n auto`` means, unless the environment says otherwise."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    return len(os.sched_getaffinity(0)) + WORKERS_MORE


def shared_by(file: str) -> str:
    """What the tests of a file share with others that run in the same process: the file, a lab, or a crew."""
    if file.startswith(ONE_CREW):
        return ONE_CREW
    name = file.removeprefix(END_TO_END)
    if name == file or name in OWN_CLUSTER:
        return file
    return f"{END_TO_END} {'second' if name in SECOND_LAB else 'first'} lab"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file run in one process, so that the daemon, the cluster or the results they share are made
    once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return shared_by(nodeid.split("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)


def begins(file: str) -> tuple[int, str]:
    """When a file begins: the long ones first, the others by their names, so that those of all folders mix, and tests
    that wait for something run beside tests that compute."""
    name = file.rpartition("/")[2]
    if file.startswith(END_TO_END):
        return -1, name
    return (LONG.index(file) if file in LONG else len(LONG)), name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where processes share them, in the order in which they shall begin."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: begins(item.nodeid.partition("::")[0]))
