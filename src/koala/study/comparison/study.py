"""A study as an experiment of the frame, and the two calls of the library: ``read_study`` and ``run_study``.

This module defines the runs. ``runs`` executes one of them, ``findings`` evaluates them, and ``matrix`` has the files
that a study names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from koala.descriptions import decoded
from koala.study.comparison.figures import StudyFigures
from koala.study.comparison.findings import StudyFindings
from koala.study.comparison.matrix import StudyMatrix, grid_work, jobs_work, policy_work, read_matrix
from koala.study.comparison.runs import run_cell
from koala.study.frame.experiment import Conclusion, Experiment, FinishedUnit, Parameters, Unit
from koala.study.frame.run import Computer
from koala.study.frame.whole_run import SeedRange, WholeRun, run_to_report

# A first look has at most this many jobs of each generator, and of a trace.
QUICK_JOBS_MAX = 40


class StudyParameters(Parameters, frozen=True, kw_only=True):
    """The parameters: ``jobs_max`` shortens every workload and trace to this many jobs; 0 leaves them."""

    jobs_max: Annotated[int, msgspec.Meta(ge=0)] = 0


class Study(Experiment[StudyParameters]):
    """Every policy of a study file with all jobs on all grids, under the same seeds; made by ``read_study``.

    ``matrix`` has the contents of the file: policies, grids, jobs, seeds, metrics and expectations.

    >>> from koala.study import read_study
    >>> text = "{study: spread, policies: [WF, CM], grids: [das2], workloads: [koala2006-w1]}"
    >>> study = read_study("spread", text=text)
    >>> study.name, [contender.label for contender in study.matrix.contenders]
    ('spread', ['WF', 'CM'])
    """

    parameters_type = StudyParameters
    claim_word = "expectation"

    def __init__(self, matrix: StudyMatrix, *, parquet: bool = False) -> None:
        self.matrix = matrix
        self.name = matrix.name
        self.title = matrix.name
        self.question = matrix.question
        self.repetitions = matrix.seeds
        self.seeds_max = matrix.seeds_max
        self.extras: tuple[str, ...] = ("kernel",) if any(jobs.trace for jobs in matrix.jobs) else ()
        self.method = _method(matrix)
        self._parquet = parquet
        self._contenders = {_key(policy_work(each)): each for each in matrix.contenders}
        self._grids = {grid_work(each): each for each in matrix.grids}
        self._jobs = {_key(jobs_work(each, all_divide=matrix.all_divide)): each for each in matrix.jobs}

    def quick(self, parameters: StudyParameters) -> StudyParameters:
        return msgspec.structs.replace(parameters, jobs_max=QUICK_JOBS_MAX)

    def units(self, parameters: StudyParameters, seed: int, repetitions: int) -> list[Unit]:
        """Return a unit for each run. Labels are not in the work: a change of labels repeats no run."""
        matrix = self.matrix
        policies = [(each.label, policy_work(each)) for each in matrix.contenders]
        grids = {each.label: grid_work(each) for each in matrix.grids}
        jobs = {each.label: jobs_work(each, all_divide=matrix.all_divide) for each in matrix.jobs}
        return [
            Unit(
                label=f"{policy}, {grid.label}, {each.label}, seed {number}",
                work={
                    "policy": policy_as_work,
                    "grid": grids[grid.label],
                    "jobs": jobs[each.label],
                    "seed": number,
                    **msgspec.to_builtins(parameters),
                },
            )
            for number in range(seed, seed + repetitions)
            for grid, each in matrix.worlds
            for policy, policy_as_work in policies
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        return run_cell(
            self._contenders[_key(work["policy"])],
            self._grids[work["grid"]],
            self._jobs[_key(work["jobs"])],
            work["seed"],
            work["jobs_max"],
            all_divide=self.matrix.all_divide,
        )

    def conclude(self, parameters: StudyParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        findings = StudyFindings(self.matrix, results)
        return findings.conclusion(StudyFigures(findings).figures(), parquet=self._parquet)

    def command(self, shown: Mapping[str, Any]) -> str:
        quick = " --quick" if shown["jobs_max"] else ""
        return f"koala study run {self.matrix.source}{quick} --out DIR"

    def seed_range(self, *, quick: bool = False) -> SeedRange:
        """Return the seeds of the study, or those of a first look."""
        if quick:
            return SeedRange(self.matrix.first_seed, self.quick_repetitions, self.quick_repetitions)
        return SeedRange(self.matrix.first_seed, self.matrix.seeds, self.matrix.seeds_max)


def _key(work: dict[str, Any]) -> bytes:
    return msgspec.json.encode(work, order="sorted")


def _method(matrix: StudyMatrix) -> tuple[str, ...]:
    seeds = f"{matrix.seeds} seeds at first, from {matrix.first_seed} on"
    if matrix.seeds_max > matrix.seeds:
        seeds += f", and up to {matrix.seeds_max} while an expectation is undecided and they would decide it"
    size = matrix.in_words()
    paragraphs = [
        (
            f"{size[0].upper()}{size[1:]}. The scheduler is the one that runs live; sites, links, users and faults "
            f"are simulated. There are {seeds}."
        ),
        (
            "Everything random has a stream of its own, drawn from the seed and from what it is for. So under one "
            "seed all policies meet the same jobs, users and faults, and they are compared by their difference in "
            "each seed. Intervals are Student's t over seeds. An expectation holds when every interval behind it "
            "lies wholly where it says, the contrary is shown when one lies wholly elsewhere, and else it is "
            "undecided."
        ),
    ]
    if any(jobs.parts > 1 for jobs in matrix.jobs):
        paragraphs.append("Of a trace each seed runs a part of its own; no two parts share a job.")
    return tuple(paragraphs)


def read_study(source: Path | str, *, text: str | None = None, parquet: bool = False) -> Study:
    """Return the study in a file. Files that it names are relative to its folder.

    With ``text`` nothing is read from ``source``, which is then only a name for messages, and files are relative to
    the current folder. ``parquet`` makes the report write ``runs.parquet`` too. Raises ``DescriptionError`` with
    every problem of the file.

    >>> from koala.study import read_study
    >>> text = "{study: spread, policies: [WF, CM], grids: [das2, 4x32], workloads: [koala2006-w1]}"
    >>> print(read_study("spread", text=text).matrix.in_words())
    2 policies x 2 grids x 1 workload or trace x 20 seeds: 80 runs at first
    """
    path = Path(source)
    folder = path.parent if text is None else Path()
    content = decoded(path.read_bytes(), str(path)) if text is None else text
    return Study(read_matrix(content, str(source), folder), parquet=parquet)


def run_study(
    study: Study,
    folder: Path | str,
    *,
    quick: bool = False,
    processes: int | None = None,
    computer: Computer | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> WholeRun:
    """Run a study and write its report into a folder. Runs that an earlier call finished there are not repeated.

    - ``quick``: a first look, with three seeds and few jobs, which decides nothing;
    - ``processes``: the number of processes, by default one for each core; or ``computer``, a Dask cluster. A
      script that starts processes has to guard its own beginning with ``if __name__ == "__main__"``;
    - ``fresh``: repeat all runs;
    - ``progress``: called with the number of finished runs, and of all runs.

    >>> from koala.study import read_study, run_study
    >>> text = "{study: spread, policies: [WF, CM], grids: [das2], workloads: [{workload: koala2006-w1, jobs: 10}]}"
    >>> done = run_study(read_study("spread", text=text), "spread-results", quick=True, processes=1)
    >>> done.written.html_path.name
    'report.html'
    """
    parameters = StudyParameters()
    return run_to_report(
        study,
        study.quick(parameters) if quick else parameters,
        study.seed_range(quick=quick),
        Path(folder),
        processes=processes,
        computer=computer,
        fresh=fresh,
        quick=quick,
        progress=progress,
    )
