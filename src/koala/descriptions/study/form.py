"""Study files in YAML: which policies meet which jobs on which grids under which seeds, and what is expected of them.

The models below are also the JSON schema that ``koala schema study`` prints. ``koala.study`` reads the files that a
study names.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from koala.descriptions.errors import Problem, refuse_any, shown
from koala.descriptions.fields import (
    STUDY_LABEL_CHARACTERS_MAX,
    Description,
    Label,
    Name,
    Number,
    PolicyName,
    SecondsAboveZero,
    SomeText,
    StudyLabel,
    exactly_one,
    schema_of,
)
from koala.descriptions.workload.form import GENERATED_JOBS_MAX, RequestKind
from koala.descriptions.yaml.problems import nearest, wrong
from koala.descriptions.yaml.text import Document, read_document
from koala.model.grid import PLAN_DEPTH_MAX

# Limits on one study file. The runs include those of all seeds that it may take.
STUDY_RUNS_MAX = 100_000
STUDY_ENTRIES_MAX = 1_000
STUDY_SEEDS_MAX = 10_000
# A study starts with this many seeds by default, and uses at most this multiple of its first ones.
SEEDS_COUNT = 20
SEEDS_GROWTH = 4


class StudyMetric(enum.StrEnum):
    """What is measured of a run, over the jobs that were done."""

    RESPONSE = "response_s"
    RESPONSE_P95 = "response_p95_s"
    WAIT = "wait_s"
    WAIT_P95 = "wait_p95_s"
    WAIT_MAX = "wait_max_s"
    QUEUE = "queue_s"
    OVERHEAD = "overhead_s"
    EXECUTION = "execution_s"
    SLOWDOWN = "slowdown"
    CLUSTERS = "clusters"
    COALLOCATED_SHARE = "coallocated_share"
    DONE_SHARE = "done_share"
    UTILISATION = "utilisation"
    MAKESPAN = "makespan_s"
    FAILURES = "failures"
    RESTARTS = "restarts"


SeedCount = Annotated[int, Field(strict=True, ge=2, le=STUDY_SEEDS_MAX)]


def _named(key: str) -> BeforeValidator:
    """Read a text alone as the value of this key."""

    def read(value: Any) -> Any:
        return {key: value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value

    return BeforeValidator(read)


class StudyPolicyText(Description):
    """One policy of the comparison."""

    policy: PolicyName = Field(description="its name, with parameters where it has some: CM, B3(chunk=0.9)")
    label: StudyLabel | None = Field(default=None, description="what the study calls it; by default its name")
    policy_file: SomeText | None = Field(
        default=None, description="the Python file that registers it, beside the study; not for Koala's own"
    )
    request: RequestKind | None = Field(
        default=None,
        description="what drawn jobs ask for: by default flexible of a policy that divides totals, and non-fixed of "
        "others; jobs that are fixed stay so",
    )
    plan_depth: Annotated[int, Field(strict=True, ge=0, le=PLAN_DEPTH_MAX)] | None = Field(
        default=None, description="plan so many jobs of each queue ahead, instead of the grid's: 1 is EASY"
    )


class StudyGridText(Description):
    """One grid of the comparison."""

    grid: SomeText = Field(description="a grid file, the name of an example, or clusters in short: 4x100")
    label: StudyLabel | None = Field(default=None, description="what the study calls it; by default its name")


class StudyWorkloadText(Description):
    """One workload of the comparison."""

    workload: SomeText = Field(description="a workload file, or the name of an example")
    label: StudyLabel | None = Field(default=None, description="what the study calls it; by default its name")
    jobs: Annotated[int, Field(strict=True, ge=1, le=GENERATED_JOBS_MAX)] | None = Field(
        default=None, description="how many jobs each of its generators draws, instead of its own number"
    )
    interarrival_s: SecondsAboveZero | None = Field(
        default=None, description="the mean time between two jobs, exponential, instead of its own"
    )


class StudyTraceText(Description):
    """One trace of the comparison."""

    trace: SomeText = Field(description="a trace in SWF or GWF, also packed: KTH-SP2.swf.gz")
    label: StudyLabel | None = Field(default=None, description="what the study calls it; by default its name")
    jobs: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="each seed runs a part of its own, of so many jobs; by default the whole trace"
    )


class StudySeedsText(Description):
    """Which seeds. More follow while an expectation is undecided and they would decide it."""

    first: Annotated[int, Field(strict=True, ge=0)] = Field(default=1, description="the first one; others follow")
    count: SeedCount = Field(default=SEEDS_COUNT, description="how many at first; verdicts need at least 20")
    most: SeedCount | None = Field(
        default=None,
        description=f"how many at most while something is undecided; by default {SEEDS_GROWTH} times count",
    )

    @property
    def at_most(self) -> int:
        """The largest number of seeds."""
        return min(STUDY_SEEDS_MAX, SEEDS_GROWTH * self.count) if self.most is None else self.most


Bound = Number | StudyLabel


class ExpectationText(Description):
    """What is expected of one policy: a metric below, above or near that of another, or a number."""

    policy: StudyLabel = Field(description="of which policy, by its label")
    metric: StudyMetric = Field(default=StudyMetric.RESPONSE, description="what is measured")
    below: Bound | None = Field(default=None, description="lower than under this policy, or than this number")
    above: Bound | None = Field(default=None, description="higher than under this policy, or than this number")
    near: Bound | None = Field(default=None, description="as under this policy, or as this number, within percent")
    percent: Annotated[Number, Field(gt=0, lt=1000)] | None = Field(
        default=None, description="lower or higher by at least so many percent; of near, how far it may be away"
    )
    grids: tuple[StudyLabel, ...] | None = Field(default=None, description="on which grids; by default on all")
    workloads: tuple[StudyLabel, ...] | None = Field(
        default=None, description="with which workloads and traces; by default with all"
    )
    name: StudyLabel | None = Field(default=None, description="a short name; by default E1, E2 and so on")
    text: Label | None = Field(default=None, description="the sentence for the report, instead of Koala's")

    @model_validator(mode="after")
    def _is_one_thing(self) -> ExpectationText:
        exactly_one(self, "below", "above", "near")
        if self.near is not None and self.percent is None:
            raise wrong("near does not say how near", "write percent: 5 beside it", "near")
        if self.percent is not None and self.near is None and not isinstance(self.bound, str):
            raise wrong("percent goes with the name of a policy", "write the number that is meant", "percent")
        return self

    @property
    def key(self) -> str:
        """Which of the three keys it has."""
        return next(key for key in ("below", "above", "near") if getattr(self, key) is not None)

    @property
    def bound(self) -> float | str:
        """The policy or the number that it is compared with."""
        found: float | str = getattr(self, self.key)
        return found


class StudyText(Description):
    """A study: every policy meets all jobs on all grids under the same seeds."""

    study: Name = Field(description="its name, of letters, digits, dots, underscores and dashes")
    question: Label | None = Field(default=None, description="what it is to answer, for the report")
    policies: Annotated[
        tuple[Annotated[StudyPolicyText, _named("policy")], ...], Field(min_length=1, max_length=STUDY_ENTRIES_MAX)
    ] = Field(description="the policies: names, or entries with more to say")
    grids: Annotated[
        tuple[Annotated[StudyGridText, _named("grid")], ...], Field(min_length=1, max_length=STUDY_ENTRIES_MAX)
    ] = Field(description="the grids: files, examples, clusters in short, or entries with a label")
    workloads: Annotated[
        tuple[Annotated[StudyWorkloadText, _named("workload")], ...], Field(max_length=STUDY_ENTRIES_MAX)
    ] = Field(default=(), description="the workloads: files, examples, or entries with more to say")
    traces: Annotated[tuple[Annotated[StudyTraceText, _named("trace")], ...], Field(max_length=STUDY_ENTRIES_MAX)] = (
        Field(default=(), description="the traces: files, or entries with more to say")
    )
    seeds: Annotated[StudySeedsText, _named("count")] = Field(
        default=StudySeedsText(), description="the seeds: how many at first, or an entry with more to say"
    )
    baseline: StudyLabel | None = Field(
        default=None, description="the policy that others are compared with; by default the first"
    )
    metrics: Annotated[tuple[StudyMetric, ...], Field(min_length=1)] = Field(
        default=(StudyMetric.RESPONSE, StudyMetric.WAIT, StudyMetric.EXECUTION),
        description="what the tables and figures show",
    )
    expectations: Annotated[tuple[ExpectationText, ...], Field(max_length=STUDY_ENTRIES_MAX)] = Field(
        default=(), description="what is expected, to be judged: holds, contrary or undecided"
    )

    @property
    def runs_max(self) -> int:
        """The largest number of runs."""
        return len(self.policies) * len(self.grids) * (len(self.workloads) + len(self.traces)) * self.seeds.at_most


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of a study file."""
    return schema_of(StudyText, "Koala study")


def read_study_text(text: str, source: str) -> Document[StudyText]:
    """Return the study that a YAML text describes, and its places; raise DescriptionError with all
    problems if invalid."""
    document: Document[StudyText] = read_document(text, source, StudyText)
    refuse_any(source, _problems(document))
    return document


def policy_label(entry: StudyPolicyText) -> str:
    """Return the label of a policy."""
    return entry.label or entry.policy


def file_label(entry: StudyGridText | StudyWorkloadText | StudyTraceText) -> str:
    """Return the label of a grid, a workload or a trace, or its name without folders and endings."""
    if entry.label is not None:
        return entry.label
    name = next(value for value in (getattr(entry, key, None) for key in ("grid", "workload", "trace")) if value)
    bare: str = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    for ending in (".gz", ".bz2", ".xz", ".yaml", ".yml", ".swf", ".gwf", ".gwa"):
        bare = bare.removesuffix(ending)
    return (bare or name)[:STUDY_LABEL_CHARACTERS_MAX]


def _problems(document: Document[StudyText]) -> Iterator[Problem]:
    """Yield the problems that no part of the document can detect alone."""
    study = document.model
    if not study.workloads and not study.traces:
        yield document.problem((), "there are no jobs to run", "write workloads: or traces:")
    seeds = study.seeds
    if seeds.most is not None and seeds.most < seeds.count:
        yield document.problem(
            ("seeds", "most"), f"{seeds.most} are fewer than the {seeds.count} to begin with", "write at least count"
        )
    if study.runs_max > STUDY_RUNS_MAX:
        yield document.problem(
            (),
            f"{len(study.policies):,} policies x {len(study.grids):,} grids x "
            f"{len(study.workloads) + len(study.traces):,} workloads and traces x {seeds.at_most:,} seeds are "
            f"{study.runs_max:,} runs, more than {STUDY_RUNS_MAX:,} (STUDY_RUNS_MAX)",
            "divide the study, or take fewer seeds with seeds: {count: 20, most: 20}",
        )
    policies = [policy_label(each) for each in study.policies]
    grids = [file_label(each) for each in study.grids]
    workloads = [*map(file_label, study.workloads), *map(file_label, study.traces)]
    yield from _twice(document, [("policies", index) for index in range(len(policies))], policies)
    yield from _twice(document, [("grids", index) for index in range(len(grids))], grids)
    places: list[tuple[str | int, ...]] = [("workloads", index) for index in range(len(study.workloads))]
    places += [("traces", index) for index in range(len(study.traces))]
    yield from _twice(document, places, workloads)
    if study.baseline is not None:
        yield from _unknown(document, ("baseline",), "policy", study.baseline, policies)
    for index, expected in enumerate(study.expectations):
        here = ("expectations", index)
        yield from _unknown(document, (*here, "policy"), "policy", expected.policy, policies)
        if isinstance(expected.bound, str):
            yield from _unknown(document, (*here, expected.key), "policy", expected.bound, policies)
            if expected.bound == expected.policy:
                yield document.problem(
                    (*here, expected.key), f"{shown(expected.policy)} is compared with itself", "name another policy"
                )
        for key, kind, known in (("grids", "grid", grids), ("workloads", "workload or trace", workloads)):
            for number, label in enumerate(getattr(expected, key) or ()):
                yield from _unknown(document, (*here, key, number), kind, label, known)


def _twice(
    document: Document[StudyText], places: Sequence[tuple[str | int, ...]], labels: Sequence[str]
) -> Iterator[Problem]:
    often = {label for label, count in Counter(labels).items() if count > 1}
    seen: set[str] = set()
    for place, label in zip(places, labels, strict=True):
        if label in often and label in seen:
            yield document.problem(
                place, f"two entries are called {shown(label)}", "give one of them a label: of its own"
            )
        seen.add(label)


def _unknown(
    document: Document[StudyText], path: tuple[str | int, ...], kind: str, label: str, known: list[str]
) -> Iterator[Problem]:
    if label not in known:
        yield document.problem(path, f"the study has no {kind} {shown(label)}", nearest(label, known))
