"""Grid files, workload files and policy files from the disk, for programs that have paths and for the command line.

``koala.descriptions`` and ``koala.policies``, which open no files, define their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from koala.descriptions import decoded, read_grid
from koala.descriptions.workload.form import WorkloadFile, read_workload
from koala.model.grid import Grid, PolicyFile
from koala.policies.policy_file import read_policy_file


def read_grid_file(path: str | Path, *, policy_files: Iterable[str | Path] = ()) -> Grid:
    """Return the grid that a file describes, with the policies in the files that it names, and in ``policy_files``.

    Raises ``DescriptionError`` with every problem of the file, and ``PolicyFileError`` for a policy file.

    >>> from pathlib import Path
    >>> from koala.simulator import read_grid_file
    >>> _ = Path("grid.yaml").write_text("sites: {delft: {processors: 64}, leiden: {processors: 32}}")
    >>> [(site.name, site.processors) for site in read_grid_file("grid.yaml").sites]
    [('delft', 64), ('leiden', 32)]
    """
    return with_policy_files(read_grid(decoded(Path(path).read_bytes(), str(path)), str(path)), policy_files)


def read_workload_file(path: str | Path) -> WorkloadFile:
    """Return the workload that a file describes. Raises ``DescriptionError`` with every problem of the file.

    >>> from pathlib import Path
    >>> from koala.simulator import clusters_in_short, read_workload_file, simulate
    >>> text = "jobs: [{at_s: 0, execution_s: 60, job: {components: [{processors: 4}]}}]"
    >>> _ = Path("jobs.yaml").write_text(text)
    >>> [row.execution_s for row in simulate(clusters_in_short("1x8"), read_workload_file("jobs.yaml")).rows()]
    [60.0]
    """
    return read_workload(decoded(Path(path).read_bytes(), str(path)), str(path))


def with_policy_files(grid: Grid, paths: Iterable[str | Path] = ()) -> Grid:
    """Return the grid with the texts of its policy files and of these. A file is read once, however its path is
    written."""
    known: dict[Path, PolicyFile] = {}
    for file in (*grid.policy_files, *(PolicyFile(path=str(path)) for path in paths)):
        known.setdefault(Path(file.path).resolve(), file)
    files = tuple(_read(file) for file in known.values())
    return grid if files == grid.policy_files else msgspec.structs.replace(grid, policy_files=files)


def read_policy_files(paths: Iterable[str | Path]) -> tuple[PolicyFile, ...]:
    """Return the policy files with their texts."""
    return tuple(_read(PolicyFile(path=str(path))) for path in paths)


def _read(file: PolicyFile) -> PolicyFile:
    def content(bytes_max: int) -> bytes:
        with Path(file.path).open("rb") as opened:
            return opened.read(bytes_max)

    return file if file.text is not None else read_policy_file(file.path, content)
