"""Units on a real Dask cluster, a scheduler and two workers on the loopback: the same results as here, and errors."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.study.frame import dask_run
from koala.study.frame.dask_run import DaskError, on_dask
from koala.study.frame.run import UnitError, run_units
from tests.support.frame_samples import Compiled, Sample, SampleParameters, marked_units, times_computed
from tests.support.paths import SUPPORT
from tests.support.warm_koala import WarmProcess, start_koala

PATIENCE_S = 120
# What the scheduler and the workers have in common.
IMPORTED = ("distributed", Compiled.__module__, "koala.simulator.kernels.mini_grid", "tests.support.compiled_first")


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[WarmProcess]:
    """A program of Dask, ended in the end whatever it does."""
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    }
    with log.open("wb") as output, Path(os.devnull).open("rb") as nothing:
        process = start_koala(
            arguments,
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=output.fileno(),
            env=environment,
            cwd=log.parent,
            program=SUPPORT / "dask_child.py",
            imported=IMPORTED,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def patiently(what: str, log: Path, found: Any) -> Any:
    """What the function finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = found()
        if value is not None:
            return value
        time.sleep(0.05)
    raise AssertionError(f"no {what} within {PATIENCE_S} s: {log.read_text()}")


@contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    """A scheduler on a free port of the loopback; gives its address."""
    file = folder / "scheduler.json"
    log = folder / "scheduler.log"
    quiet = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
    with started(log, "distributed.cli.dask_scheduler", *quiet, "--scheduler-file", str(file)):

        def address() -> str | None:
            try:
                return str(json.loads(file.read_text())["address"])
            except (FileNotFoundError, json.JSONDecodeError):
                return None

        yield patiently("scheduler", log, address)


@contextmanager
def worker(folder: Path, name: str, address: str) -> Iterator[WarmProcess]:
    """A worker of that scheduler, with one thread."""
    log = folder / f"{name}.log"
    options = ("--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", "--local-directory", str(folder / name))
    quiet = ("--dashboard-address", "127.0.0.1:0")
    with started(log, "distributed.cli.dask_worker", address, *options, *quiet) as process:
        patiently("worker", log, lambda: True if "Registered to" in log.read_text() else None)
        yield process


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler that has no workers until the first test that takes ``cluster``."""
    with scheduler(tmp_path_factory.mktemp("scheduler")) as address:
        yield address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, lonely: str) -> Iterator[str]:
    """The address of a scheduler with two workers."""
    folder = tmp_path_factory.mktemp("workers")
    with worker(folder, "one", lonely), worker(folder, "two", lonely):
        yield lonely


def test_a_scheduler_without_workers_is_named(lonely: str) -> None:
    """The first, since it needs the scheduler before there are workers."""
    with pytest.raises(DaskError, match="has no workers, also after 1 s; start some with: dask worker tcp://"):
        on_dask(Sample(), lonely, workers_timeout_s=1)


def test_a_cluster_gives_the_same_results_in_the_same_order_as_this_machine(tmp_path: Path, cluster: str) -> None:
    units = marked_units(tmp_path / "marks", 30)
    told: list[tuple[int, int]] = []
    there = run_units(
        Sample(), units, tmp_path / "there", computer=on_dask(Sample(), cluster), progress=lambda *at: told.append(at)
    )
    assert times_computed(tmp_path / "marks") == dict.fromkeys(range(1, 31), 1)
    assert told == [(done, 30) for done in range(31)]
    assert there == run_units(Sample(), units, tmp_path / "here", processes=1)
    kept = [sorted(path.name for path in (tmp_path / each / "units").iterdir()) for each in ("there", "here")]
    assert kept[0] == kept[1]


def test_the_kernel_gives_the_same_numbers_on_a_cluster(tmp_path: Path, cluster: str) -> None:
    study = Compiled()
    units = study.units(SampleParameters(), 1, 4)
    # Here first: to compile the kernel takes a while, and the workers then read what was compiled.
    here = run_units(study, units, tmp_path / "here", processes=1)
    there = run_units(study, units, tmp_path / "there", computer=on_dask(study, cluster))
    assert there == here
    assert len({finished.result["end_s"] for finished in there}) > 1


def test_more_units_than_are_sent_at_once_are_all_computed_once(tmp_path: Path, cluster: str) -> None:
    computer = on_dask(Sample(), cluster, at_once=3)
    results = run_units(Sample(), marked_units(tmp_path / "marks", 10), tmp_path, computer=computer)
    assert [finished.result["value"] for finished in results] == [2.0 * seed for seed in range(1, 11)]
    assert times_computed(tmp_path / "marks") == dict.fromkeys(range(1, 11), 1)


def test_a_run_that_an_error_ended_goes_on_where_it_was(tmp_path: Path, cluster: str) -> None:
    computer = on_dask(Sample(), cluster)
    with pytest.raises(UnitError, match=r"sample, number 3: RuntimeError: the dice fell off the table"):
        run_units(Sample(), marked_units(tmp_path / "marks", 3, u3="fail"), tmp_path, computer=computer)
    kept = len(list((tmp_path / "units").iterdir()))
    told: list[int] = []
    run_units(
        Sample(),
        marked_units(tmp_path / "marks", 3),
        tmp_path,
        computer=computer,
        progress=lambda finished, _all: told.append(finished),
    )
    assert told[0] == kept
    assert told[-1] == 3


def test_nothing_is_sent_where_everything_is_kept(tmp_path: Path, cluster: str) -> None:
    units = marked_units(tmp_path / "marks", 2)
    computer = on_dask(Sample(), cluster)
    first = run_units(Sample(), units, tmp_path, computer=computer)
    assert run_units(Sample(), units, tmp_path, computer=computer) == first
    assert times_computed(tmp_path / "marks") == {1: 1, 2: 1}


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A small study."""
    path = tmp_path / "tiny.yaml"
    workload = "{workload: koala2006-w1, jobs: 2}"
    path.write_text(
        f"study: tiny\npolicies: [WF, CM]\ngrids: [3x64]\nworkloads: [{workload}]\nmetrics: [execution_s]\n"
    )
    return str(path)


def test_the_command_computes_on_the_cluster(tmp_path: Path, cluster: str, tiny: str) -> None:
    def run(folder: str, *options: str) -> Result:
        return CliRunner().invoke(
            koala, ["study", "run", tiny, "--out", str(tmp_path / folder), "--quick", "--json", *options]
        )

    there = run("a", "--dask", cluster)
    assert there.exit_code == 0, there.output
    assert there.stdout == run("b", "--jobs", "1").stdout
    both = run("c", "--dask", cluster, "--jobs", "2")
    assert both.exit_code == 2
    assert "--jobs: with --dask" in both.stderr


def test_a_worker_that_dies_is_replaced_by_another(tmp_path: Path, cluster: str) -> None:
    units = marked_units(tmp_path / "marks", 6)
    with worker(tmp_path, "three", cluster) as third:
        computer = on_dask(Sample(), cluster)
        third.send_signal(signal.SIGKILL)
        results = run_units(Sample(), units, tmp_path / "out", computer=computer)
    assert [finished.result["value"] for finished in results] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_another_version_there_is_named(cluster: str) -> None:
    with pytest.raises(DaskError, match=r"the scheduler has Koala .*, and here is 0\.0\.1; install the same version"):
        on_dask(Sample(), cluster, version="0.0.1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers there within 1 s; start one with: dask scheduler"),
        ("nonsense", "this is no address of a scheduler: missing port"),
        ("foo://127.0.0.1:1", "this is no address of a scheduler: unknown address scheme"),
        ("inproc://1.2.3", "this is no address of a scheduler"),
        ("no-such-host.invalid:8786", "there is no such host"),
    ],
)
def test_a_cluster_that_is_not_there_is_named_and_nothing_is_written(
    tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    monkeypatch.setattr(dask_run, "CONNECT_TIMEOUT_S", 1)
    out = tmp_path / "out"
    done = CliRunner().invoke(koala, ["study", "run", tiny, "--out", str(out), "--dask", address])
    assert done.exit_code == 2, done.output
    assert f"--dask {address}: " in done.stderr
    assert words in done.stderr
    assert not out.exists()


def test_an_experiment_that_measures_this_machine_stays_here() -> None:
    class Narrow(Sample):
        processes_max = 1

    with pytest.raises(DaskError, match="sample measures this machine and cannot be computed elsewhere"):
        on_dask(Narrow(), "tcp://127.0.0.1:1")


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "distributed" else real(name, *more)
    )
    done = CliRunner().invoke(koala, ["study", "run", "tiny.yaml", "--dask", "tcp://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "distributed is not installed; install them with: pip install 'koala-scheduler[dask]'" in done.stderr
