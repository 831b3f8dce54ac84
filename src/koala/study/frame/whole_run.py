"""A whole run of an experiment: look after look until its claims are decided, then the report.

The command line and the library both use it; the caller handles progress and interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from koala.study.frame.claims import PaperClaim
from koala.study.frame.experiment import Experiment, FinishedUnit, P, Unit
from koala.study.frame.looks import Judged, judged, planned_looks
from koala.study.frame.report import WrittenReport, check_folder, write_report
from koala.study.frame.run import Computer, run_units


class WholeRun(NamedTuple):
    """The result of a study or an experiment: ``seen``, the result of the last look, and ``written``, the report.

    ``seen.conclusion`` has the ``claims`` with their verdicts, the ``figures`` and the ``results``; ``written`` has
    the ``report`` as it is in the JSON file, with the paths ``json_path``, ``html_path`` and ``figures``.

    >>> from koala.study import read_study, run_study
    >>> text = (
    ...     "{study: spread, policies: [WF, CM], grids: [das2], workloads: [{workload: koala2006-w1, jobs: 10}], "
    ...     "expectations: [{policy: CM, below: WF}]}"
    ... )
    >>> done = run_study(read_study("spread", text=text), "spread-results", quick=True, processes=1)
    >>> [(claim.text, str(claim.verdict)) for claim in done.seen.conclusion.claims]
    [("CM's mean response time is lower than WF's.", 'undecided')]
    """

    seen: Judged
    written: WrittenReport


class SeedRange(NamedTuple):
    """The first seed, their number at the first look, and their maximum.

    >>> from koala.study import SeedRange
    >>> SeedRange(first=1, at_first=20, most=80).most
    80
    """

    first: int
    at_first: int
    most: int


def run_to_report(
    experiment: Experiment[P],
    parameters: P,
    seeds: SeedRange,
    folder: Path,
    *,
    processes: int | None = None,
    computer: Computer | None = None,
    fresh: bool = False,
    quick: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> WholeRun:
    """Compute, judge and write the report into the folder, which may contain results of an earlier run of the same.

    Raises OtherReportError if the folder contains a report of something else, and UnitError if a unit cannot be
    computed.

    >>> from pathlib import Path
    >>> from koala.study import SeedRange, parameters_from, read_study, run_to_report
    >>> text = "{study: s, policies: [WF], grids: [das2], workloads: [{workload: koala2006-w1, jobs: 5}]}"
    >>> study = read_study("s", text=text)
    >>> seeds = SeedRange(1, 2, 2)
    >>> done = run_to_report(study, parameters_from(study, {}), seeds, Path("results"), processes=1)
    >>> done.written.html_path.name
    'report.html'
    """
    check_folder(folder, experiment.name)
    units: list[Unit] = []
    counted = 0

    def results_of(count: int, undecided: Sequence[PaperClaim]) -> list[FinishedUnit]:
        nonlocal units, counted
        if counted:
            units = experiment.more_units(parameters, seeds.first, units, range(counted, count), undecided)
        else:
            units = experiment.units(parameters, seeds.first, count)
        counted = count
        return run_units(
            experiment,
            units,
            folder,
            processes=processes,
            computer=computer,
            fresh=fresh and count == seeds.at_first,
            progress=progress,
        )

    seen = judged(experiment, parameters, planned_looks(seeds.at_first, seeds.most), results_of, quick=quick)
    return WholeRun(seen, write_report(experiment, parameters, seeds.first, seeds.most, seen, folder))
