"""One start of mpiexec for the runs of this folder that need no start of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.application_runs import require_mpiexec
from tests.support.mpi_crew import MpiCrew

PROCESSES_MAX = 8


@pytest.fixture(scope="session")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MpiCrew]:
    """Processes for worlds of all sizes."""
    require_mpiexec()
    with MpiCrew(tmp_path_factory.mktemp("crew"), PROCESSES_MAX) as found:
        yield found
