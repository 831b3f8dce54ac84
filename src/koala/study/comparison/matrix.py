"""The matrix of a study: its policies, grids and jobs with the contents of the files that it names.

It contains everything that a run depends on as content, so that a study can be sent to another process. Traces, which
can be large, stay in place and are identified by their hash.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from koala.descriptions import decoded, read_grid
from koala.descriptions.errors import shown
from koala.descriptions.grid.short import ShortGridError, clusters_in_short, is_short
from koala.descriptions.study.form import (
    ExpectationText,
    StudyMetric,
    StudyText,
    StudyTraceText,
    StudyWorkloadText,
    file_label,
    policy_label,
    read_study_text,
)
from koala.descriptions.workload.form import RequestKind, WorkloadFile, read_workload
from koala.descriptions.yaml.problems import nearest
from koala.descriptions.yaml.text import Document
from koala.model.grid import Grid, PolicyFile
from koala.policies import Catalogue, PolicyFileError, UnknownPolicyError
from koala.policies.forms import Form
from koala.policies.policy_file import read_policy_file
from koala.simulator.examples import example_names, example_text

if TYPE_CHECKING:
    from koala.simulator.traces.reader import Trace

# The number of parsed files that a process caches; neighbouring runs share them.
_REMEMBERED = 8

Place = tuple[str | int, ...]


class FileContent(NamedTuple):
    """A text that the study names, and its name in messages."""

    text: str
    source: str

    @property
    def identity(self) -> str:
        """A hash that is equal for equal texts only."""
        return identity_of(self.text)


def identity_of(text: str) -> str:
    """Return a hash that is equal for equal texts only."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A policy of the study. ``file`` registers it unless it is Koala's or an installed package's."""

    label: str
    policy: str
    divides: bool
    request: RequestKind | None
    plan_depth: int | None
    file: PolicyFile | None


class StudyGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A grid of the study; a grid in short form has no text."""

    label: str
    content: FileContent


class StudyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a world: those of a workload, or of a trace, which is identified by its path and hash.

    ``parts`` is the number of parts of a trace, each of the same number of jobs, one for each seed.
    """

    label: str
    content: FileContent | None = None
    trace: str = ""
    trace_identity: str = ""
    jobs: int | None = None
    interarrival_s: float | None = None
    parts: int = 1


class StudyMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """A study as read, with all contents that it names."""

    name: str
    question: str
    source: str
    contenders: tuple[Contender, ...]
    grids: tuple[StudyGrid, ...]
    jobs: tuple[StudyJobs, ...]
    first_seed: int
    seeds: int
    seeds_max: int
    baseline: str
    metrics: tuple[StudyMetric, ...]
    expectations: tuple[ExpectationText, ...]

    @property
    def worlds(self) -> list[tuple[StudyGrid, StudyJobs]]:
        """Every combination of a grid and jobs."""
        return [(grid, jobs) for grid in self.grids for jobs in self.jobs]

    @property
    def all_divide(self) -> bool:
        """True if every policy divides totals: then a job of a trace may be larger than any one site."""
        return all(each.divides for each in self.contenders)

    def in_words(self) -> str:
        """Return its size in words."""
        counts = (
            (len(self.contenders), "policy", "policies"),
            (len(self.grids), "grid", "grids"),
            (len(self.jobs), "workload or trace", "workloads and traces"),
        )
        parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts]
        seeds = f"{self.seeds} to {self.seeds_max}" if self.seeds_max > self.seeds else str(self.seeds)
        runs = len(self.contenders) * len(self.grids) * len(self.jobs) * self.seeds
        return f"{' x '.join(parts)} x {seeds} seeds: {runs:,} runs at first"


# ------------------------------------------------------------------------------------------ reading


def read_matrix(text: str, source: str, folder: Path) -> StudyMatrix:
    """Return the study that the text describes; the files that it names are relative to the folder.

    Raises DescriptionError if the text describes none, or names a file that is missing or invalid.
    """
    document = read_study_text(text, source)
    study = document.model
    contenders = tuple(_contender(document, index, folder) for index in range(len(study.policies)))
    grids = tuple(_grid(document, index, folder) for index in range(len(study.grids)))
    workloads = [
        _workload(document, ("workloads", index), each, folder) for index, each in enumerate(study.workloads)
    ]
    traces = [
        _trace(document, ("traces", index), each, folder, study.seeds.at_most)
        for index, each in enumerate(study.traces)
    ]
    return StudyMatrix(
        name=study.study,
        question=study.question or "Which policy is better, and by how much?",
        source=source,
        contenders=contenders,
        grids=grids,
        jobs=(*workloads, *traces),
        first_seed=study.seeds.first,
        seeds=study.seeds.count,
        seeds_max=study.seeds.at_most if study.expectations else study.seeds.count,
        baseline=study.baseline or contenders[0].label,
        metrics=tuple(dict.fromkeys((*study.metrics, *(each.metric for each in study.expectations)))),
        expectations=study.expectations,
    )


def _contender(document: Document[StudyText], index: int, folder: Path) -> Contender:
    entry = document.model.policies[index]
    here: Place = ("policies", index)
    file = None
    if entry.policy_file is not None:
        path = folder / entry.policy_file
        content = _bytes_of(document, (*here, "policy_file"), path)
        file = read_policy_file(str(path), lambda bytes_max: content[:bytes_max])
    try:
        policy = catalogue_with(file).find(entry.policy)
    except PolicyFileError:
        raise  # it names the file and its line
    except UnknownPolicyError as error:
        message, _, advice = error.for_user().partition("; ")
        own = "" if file else "; for one of your own write {policy: NAME, policy_file: FILE.py}"
        raise document.error((*here, "policy"), message, (advice or "see koala policies") + own) from None
    request = entry.request
    if request is None and policy.form is not Form.TASKS:
        request = RequestKind.FLEXIBLE if policy.form.divides else RequestKind.NON_FIXED
    return Contender(
        label=policy_label(entry),
        policy=entry.policy,
        divides=policy.form.divides,
        request=request,
        plan_depth=entry.plan_depth,
        file=file,
    )


def _grid(document: Document[StudyText], index: int, folder: Path) -> StudyGrid:
    entry = document.model.grids[index]
    here: Place = ("grids", index)
    if is_short(entry.grid) and not (folder / entry.grid).is_file():
        try:
            clusters_in_short(entry.grid)
        except ShortGridError as error:
            raise document.error(here, f"{shown(entry.grid)} is no grid", str(error)) from None
        return StudyGrid(label=file_label(entry), content=FileContent("", entry.grid))
    content = _file_or_example(document, here, "grid", entry.grid, folder)
    grid_of(content)
    return StudyGrid(label=file_label(entry), content=content)


def _workload(document: Document[StudyText], here: Place, entry: StudyWorkloadText, folder: Path) -> StudyJobs:
    content = _file_or_example(document, here, "workload", entry.workload, folder)
    workload = workload_of(content)
    named = [each.policy for each in workload.text.generate] + [each.policy for each in workload.requests]
    chosen = next((policy for policy in named if policy is not None), None)
    if chosen is not None:
        raise document.error(
            here,
            f"jobs of {content.source} name the policy {chosen} themselves, so that all policies would be the same",
            "take policy: out of the workload",
        )
    return StudyJobs(label=file_label(entry), content=content, jobs=entry.jobs, interarrival_s=entry.interarrival_s)


def _trace(
    document: Document[StudyText], here: Place, entry: StudyTraceText, folder: Path, seeds_max: int
) -> StudyJobs:
    path = folder / entry.trace
    identity = hashlib.sha256(_bytes_of(document, here, path)).hexdigest()[:32]
    whole = trace_of(str(path), identity)
    parts = 1 if entry.jobs is None else whole.jobs // entry.jobs
    if entry.jobs is not None and parts < seeds_max:
        raise document.error(
            (*here, "jobs"),
            f"the trace has {whole.jobs:,} jobs, which are {parts:,} parts of {entry.jobs:,}, and there are up to "
            f"{seeds_max:,} seeds",
            f"write at most {whole.jobs // seeds_max:,}, or fewer seeds",
        )
    return StudyJobs(
        label=file_label(entry), trace=str(path), trace_identity=identity, jobs=entry.jobs, parts=max(1, parts)
    )


def _bytes_of(document: Document[StudyText], here: Place, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise document.error(
            here, f"{path} cannot be read: {error.strerror}", "write the path of a file, from the study's folder"
        ) from None


def _file_or_example(document: Document[StudyText], here: Place, kind: str, name: str, folder: Path) -> FileContent:
    path = folder / name
    if path.is_file():
        return FileContent(decoded(path.read_bytes(), str(path)), str(path))
    known = example_names(f"{kind}s")
    if name in known:
        return FileContent(example_text(f"{kind}s", name), f"{name}.yaml")
    raise document.error(
        here, f"there is no file {shown(str(path))}, and no example {kind} {shown(name)}", nearest(name, known)
    )


# ------------------------------------------------------------------------------------------- parsed contents


@lru_cache(_REMEMBERED)
def catalogue_with(file: PolicyFile | None) -> Catalogue:
    """Return Koala's own policies, those of installed packages, and those in the file."""
    return Catalogue.of(() if file is None else (file,))


@lru_cache(_REMEMBERED)
def grid_of(content: FileContent) -> Grid:
    """Return the grid that a content describes."""
    return read_grid(content.text, content.source) if content.text else clusters_in_short(content.source)


@lru_cache(_REMEMBERED)
def workload_of(content: FileContent) -> WorkloadFile:
    """Return the workload that a content describes."""
    return read_workload(content.text, content.source)


class ChangedTraceError(ValueError):
    """A trace has changed since the study was read, or is not where a worker expects it."""

    def for_user(self) -> str:
        """Return which file, and what to do."""
        return str(self)


@lru_cache(_REMEMBERED)
def trace_of(path: str, identity: str) -> Trace:
    """Return the trace in a file, which must still have that hash.

    >>> import hashlib
    >>> from pathlib import Path
    >>> from koala.simulator import lublin, swf_bytes
    >>> from koala.study import trace_of
    >>> path = Path("jobs.swf")
    >>> _ = path.write_bytes(swf_bytes(lublin(10, 1)))
    >>> trace_of(str(path), hashlib.sha256(path.read_bytes()).hexdigest()[:32]).jobs
    10
    """
    from koala.simulator.traces.reader import read_trace

    try:
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    except OSError as error:
        raise ChangedTraceError(
            f"{path}: {error.strerror}; a trace has to be under the same path on every machine that computes"
        ) from None
    if found != identity:
        raise ChangedTraceError(f"{path}: the trace has changed since the study was read; run the study again")
    return read_trace(Path(path))


# -------------------------------------------------------------------------------------------- the inputs of a run


def policy_work(contender: Contender) -> dict[str, Any]:
    """Return the inputs of a run from its policy; a file by its hash."""
    return {
        "policy": contender.policy,
        "file": None if contender.file is None else identity_of(contender.file.text or ""),
        "request": None if contender.request is None else str(contender.request),
        "plan_depth": contender.plan_depth,
    }


def grid_work(grid: StudyGrid) -> str:
    """Return the inputs of a run from its grid."""
    return grid.content.identity if grid.content.text else grid.content.source


def jobs_work(jobs: StudyJobs, *, all_divide: bool) -> dict[str, Any]:
    """Return the inputs of a run from its jobs."""
    if jobs.content is not None:
        return {"workload": jobs.content.identity, "jobs": jobs.jobs, "interarrival_s": jobs.interarrival_s}
    return {"trace": jobs.trace_identity, "jobs": jobs.jobs, "parts": jobs.parts, "larger_than_sites": all_divide}
