"""Computes units on an existing Dask cluster: other machines, the same results.

Its scheduler and its workers need this version of Koala with the libraries of the experiment; each is asked for its
version before any work. This module neither starts nor ends schedulers and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from koala.study.frame.experiment import Experiment, Unit
from koala.study.frame.run import Computed, Computer, UnitError, result_of, run_in_worker
from koala.version import __version__

if TYPE_CHECKING:
    from distributed import Client

CONNECT_TIMEOUT_S = 10
WORKERS_TIMEOUT_S = 30
# The number of units at the cluster at a time: enough to keep it busy, and few enough to take back quickly.
AT_ONCE = 1_000


class DaskError(ValueError):
    """The Dask cluster cannot be used; the message says which, why, and what to do."""

    def for_user(self) -> str:
        """Return the message, which names the address."""
        return str(self)


def on_dask(
    experiment: Experiment[Any],
    address: str,
    *,
    at_once: int = AT_ONCE,
    workers_timeout_s: float = WORKERS_TIMEOUT_S,
    version: str = __version__,
) -> Computer:
    """Return a computer for ``run_units`` that gives the units to this scheduler's cluster; raise DaskError if it
    cannot.

    The cluster and its workers are checked at once, before anything is written.
    """
    if experiment.processes_max is not None:
        raise DaskError(
            f"{experiment.name} measures this machine and cannot be computed elsewhere; run it without --dask"
        )
    with _connected(address) as client:
        _check_workers(client, address, workers_timeout_s, version)
    return partial(_computed_there, address, at_once)


def _computed_there(
    address: str, at_once: int, experiment: Experiment[Any], units: Sequence[Unit], left: Sequence[int]
) -> Computed:
    """Yield the results of the remaining units, as the cluster delivers them."""
    if not left:
        return
    from distributed import as_completed

    with _connected(address) as client:
        pending = iter(left)
        numbers: dict[Any, int] = {}
        arriving: Any = as_completed(loop=client.loop)
        try:
            for index in _first(pending, at_once):
                arriving.add(_submitted(client, experiment, units[index], index, numbers))
            for future in arriving:
                index = numbers.pop(future.key)
                yield index, _outcome(experiment, units[index], future, address)
                for following in _first(pending, 1):
                    arriving.add(_submitted(client, experiment, units[following], following, numbers))
        finally:
            arriving.clear()


def _first(pending: Iterator[int], count: int) -> Iterator[int]:
    for _, index in zip(range(count), pending, strict=False):
        yield index


def _submitted(client: Client, experiment: Experiment[Any], unit: Unit, index: int, numbers: dict[Any, int]) -> Any:
    """Submit one unit. Earlier ones go first, since neighbours often share a worker's cached data."""
    future = client.submit(run_in_worker, experiment, unit, pure=False, priority=-index)
    numbers[future.key] = index
    return future


def _outcome(experiment: Experiment[Any], unit: Unit, future: Any, address: str) -> bytes:
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    try:
        outcome = future.result(timeout=CONNECT_TIMEOUT_S)
    except KilledWorker:
        problem = "the workers that tried it died, one after the other, perhaps for lack of memory"
        raise UnitError(experiment.name, unit.label, problem) from None
    except (CancelledError, TimeoutError, OSError):
        raise UnitError(experiment.name, unit.label, f"the Dask scheduler at {address} went away") from None
    except Exception as error:  # the cluster itself may raise anything; errors of the unit come as text
        raise UnitError(experiment.name, unit.label, f"{type(error).__name__}: {error}") from error
    return result_of(experiment, outcome)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """Yield a client of the scheduler and close it in the end; raise DaskError if nobody answers."""
    from distributed import Client
    from distributed.comm.addressing import parse_address, resolve_address

    try:
        # Before there is a client: a client with an incomplete address takes long to close.
        resolve_address(address)
        if parse_address(address)[0] == "inproc":
            raise ValueError("inproc reaches nobody outside this process")
    except ValueError as error:
        raise DaskError(
            f"--dask {address}: this is no address of a scheduler: {error}; write tcp://host:8786"
        ) from None
    except OSError as error:
        raise DaskError(f"--dask {address}: there is no such host ({error.strerror}); check the name") from None
    try:
        client = Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False, name="koala")
    except (OSError, TimeoutError):
        raise DaskError(
            f"--dask {address}: no Dask scheduler answers there within {CONNECT_TIMEOUT_S} s; "
            "start one with: dask scheduler"
        ) from None
    try:
        yield client
    finally:
        client.close(timeout=CONNECT_TIMEOUT_S)


def _check_workers(client: Client, address: str, timeout_s: float, wanted: str) -> None:
    """Raise DaskError if there is no worker, or one without this version of Koala."""
    try:
        client.wait_for_workers(1, timeout=timeout_s)
    except TimeoutError:
        raise DaskError(
            f"--dask {address}: the scheduler has no workers, also after {timeout_s:g} s; "
            f"start some with: dask worker {address}"
        ) from None
    try:
        versions = {"scheduler": client.run_on_scheduler(_version_there)}
        versions |= {f"worker {name}": found for name, found in client.run(_version_there).items()}
    except Exception as error:  # importing Koala there may raise anything
        raise DaskError(
            f"--dask {address}: Koala cannot be used there ({type(error).__name__}: {error}); "
            f"install Koala {wanted} where the scheduler and its workers run"
        ) from None
    for who, version in versions.items():
        if version != wanted:
            raise DaskError(
                f"--dask {address}: the {who} has Koala {version}, and here is {wanted}; "
                "install the same version there"
            )


def _version_there() -> str:
    """Return the version of Koala; runs in the scheduler and in the workers."""
    from koala.version import __version__ as there

    return there
