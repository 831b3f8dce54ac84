"""Studies as a library: every policy meets the same jobs, verdicts have three values, and nothing is run twice."""

from __future__ import annotations

import csv
import io
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from koala.descriptions.errors import DescriptionError
from koala.descriptions.study.form import StudyMetric
from koala.policies import PolicyFileError
from koala.policies.policy_file import POLICY_FILE_BYTES_MAX
from koala.study import Study, read_study, run_study
from koala.study.comparison import matrix as study_matrix
from koala.study.comparison.findings import StudyFindings
from koala.study.comparison.study import StudyParameters
from koala.study.frame.claims import ClaimVerdict
from koala.study.frame.experiment import Unit
from koala.study.frame.whole_run import WholeRun

# Components of 6 on clusters of 8: WF and CM differ in how many clusters they combine.
WORKLOAD = """\
name: small
applications: {app: {execution_s: {uniform: [50, 100]}, per_extra_cluster: 0.5}}
generate:
  - jobs: 6
    interarrival_s: {exponential: 400}
    mix: [{application: app, sizes: [{processors: 6, components: [2]}]}]
"""
STUDY = """\
study: small
policies: [WF, CM]
grids: [3x8]
workloads: [small.yaml]
seeds: {count: 20, most: 40}
metrics: [clusters]
expectations:
  - {policy: CM, metric: execution_s, below: WF, percent: 20}
  - {policy: CM, metric: clusters, above: WF}
  - {policy: CM, metric: execution_s, near: 75, percent: 2, text: The drawn mean is met.}
  - {policy: CM, metric: clusters, near: 1, percent: 5}
"""
FIRST_SITE = '''
from koala.policies import policy

@policy("FIRST")
def first(idle, sizes, left, chosen):
    """Every component on the first site that can take it."""
    for component, size in enumerate(sizes):
        site = next((site for site in range(len(idle)) if left[site] >= size), None)
        if site is None:
            return component
        chosen[component] = site
        left[site] -= size
    return -1
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(WORKLOAD)
    (tmp_path / "first.py").write_text(FIRST_SITE)
    return tmp_path


def study_of(folder: Path, text: str = STUDY) -> Study:
    (folder / "study.yaml").write_text(text)
    return read_study(folder / "study.yaml")


def run(study: Study, folder: Path, **options: Any) -> WholeRun:
    return run_study(study, folder / "out", processes=1, **options)


def rows_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "out" / "runs.csv").read_text())))


def problem(folder: Path, text: str) -> str:
    with pytest.raises(DescriptionError) as caught:
        study_of(folder, text)
    return caught.value.for_user()


def test_expectations_are_judged_with_three_values_from_paired_differences(folder: Path) -> None:
    done = run(study_of(folder), folder)
    claims = done.seen.conclusion.claims
    assert [claim.verdict for claim in claims] == [
        ClaimVerdict.HOLDS,
        ClaimVerdict.CONTRARY,
        ClaimVerdict.UNDECIDED,
        ClaimVerdict.HOLDS,
    ]
    assert claims[0].text == "CM's mean execution time is lower than WF's by at least 20 %."
    assert claims[2].text == "The drawn mean is met."
    report = json.loads((folder / "out" / "report.json").read_text())
    assert [claim["verdict"] for claim in report["claims"]] == ["holds", "contrary", "undecided", "holds"]
    assert report["results"]["worlds"][0]["policies"]["CM"]["change_percent"]["clusters"]["mean"] == -50.0
    page = (folder / "out" / "report.html").read_text()
    assert "Expectations: 2 hold, 1 contrary, 1 undecided" in page
    assert "Changes from WF" in page


def test_a_first_look_decides_nothing_and_is_short(folder: Path) -> None:
    done = run(
        study_of(folder, STUDY.replace("[small.yaml]", "[{workload: small.yaml, jobs: 60}]")), folder, quick=True
    )
    assert {claim.verdict for claim in done.seen.conclusion.claims} == {ClaimVerdict.UNDECIDED}
    assert {row["jobs"] for row in rows_of(folder)} == {"40"}
    assert {row["seed"] for row in rows_of(folder)} == {"1", "2", "3"}


def test_a_further_policy_of_ones_own_is_all_that_is_run_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(study_of(folder), folder, quick=True)
    ran: list[str] = []
    whole = Study.run

    def counting(self: Study, unit: Unit) -> dict[str, Any]:
        ran.append(unit.label)
        return whole(self, unit)

    monkeypatch.setattr(Study, "run", counting)
    own = STUDY.replace("[WF, CM]", "[WF, {policy: CM, label: minimal}, {policy: FIRST, policy_file: first.py}]")
    own = own.partition("expectations:")[0] + "baseline: minimal\n"
    done = run(study_of(folder, own), folder, quick=True)
    assert ran == [f"FIRST, 3x8, small, seed {seed}" for seed in (1, 2, 3)]
    values = {row["policy"]: row["clusters"] for row in rows_of(folder) if row["seed"] == "1"}
    assert values == {"WF": "2.0", "minimal": "1.0", "FIRST": "1.0"}
    assert done.seen.looks_max == 1


def test_a_study_can_be_sent_to_another_process(folder: Path) -> None:
    study = study_of(folder, STUDY.replace("CM]", "{policy: FIRST, policy_file: first.py, label: CM}]"))
    there: Study = pickle.loads(pickle.dumps(study))  # noqa: S301
    (folder / "small.yaml").unlink()
    (folder / "first.py").unlink()
    units = study.units(StudyParameters(), 1, 1)
    study_matrix.workload_of.cache_clear()
    study_matrix.catalogue_with.cache_clear()
    assert [there.run(unit)["metrics"]["clusters"] for unit in units] == [2.0, 1.0]


def test_the_identity_of_a_run_has_contents_and_no_labels(folder: Path) -> None:
    (before,) = study_of(folder, STUDY.replace("[WF, CM]", "[CM]").partition("expect")[0]).units(
        StudyParameters(), 1, 1
    )
    renamed = STUDY.replace("[WF, CM]", "[{policy: CM, label: minimal}]").partition("expect")[0]
    (same,) = study_of(folder, renamed).units(StudyParameters(), 1, 1)
    (folder / "small.yaml").write_text(WORKLOAD.replace("400", "401"))
    (other,) = study_of(folder, renamed).units(StudyParameters(), 1, 1)
    assert before.identity("s") == same.identity("s") != other.identity("s")


def test_totals_go_to_policies_that_divide_and_sizes_to_the_others(folder: Path) -> None:
    matrix = study_of(folder, STUDY.replace("[WF, CM]", "[WF, CM, FCM]")).matrix
    assert [each.request for each in matrix.contenders] == ["non-fixed", "non-fixed", "flexible"]


# ------------------------------------------------------------------------------------------ traces

TRACE = "".join(
    f"{number} {number * 100} -1 50 {2 + number % 3} -1 -1 {2 + number % 3} 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
    for number in range(1, 41)
)


def test_each_seed_runs_a_part_of_a_trace_that_no_other_has(folder: Path) -> None:
    (folder / "log.swf").write_text("; MaxProcs: 8\n" + TRACE)
    text = "study: t\npolicies: [WF, FCM]\ngrids: [2x3]\nmetrics: [wait_s]\ntraces: [{trace: log.swf, jobs: 10}]\n"
    study = study_of(folder, text + "seeds: {count: 4, most: 4}\n")
    run(study, folder)
    rows = rows_of(folder)
    assert len(rows) == 2 * 4
    # Jobs of 4 processors are too large for a site of 3, and both policies go without them.
    jobs = {policy: [int(row["jobs"]) for row in rows if row["policy"] == policy] for policy in ("WF", "FCM")}
    assert jobs["WF"] == jobs["FCM"]
    assert sum(jobs["WF"]) == sum(2 + number % 3 <= 3 for number in range(1, 41))
    assert "too large for the grid" in (folder / "out" / "report.html").read_text()
    said = problem(folder, text + "seeds: {count: 4, most: 5}\n")
    assert "40 jobs, which are 4 parts of 10, and there are up to 5 seeds" in said
    assert "write at most 8" in said


def test_a_whole_trace_is_the_same_under_every_seed_and_the_report_says_so(folder: Path) -> None:
    (folder / "log.swf").write_text(TRACE)
    text = (
        "study: t\npolicies: [WF]\ngrids: [2x8]\nmetrics: [wait_s]\ntraces: [log.swf]\nseeds: {count: 2, most: 2}\n"
    )
    done = run(study_of(folder, text), folder)
    assert any("The same under every seed" in note for note in done.seen.conclusion.notes)


def test_a_trace_that_changed_since_is_refused(folder: Path) -> None:
    (folder / "log.swf").write_text(TRACE)
    study = study_of(folder, "study: t\npolicies: [WF]\ngrids: [2x8]\nmetrics: [wait_s]\ntraces: [log.swf]\n")
    study_matrix.trace_of.cache_clear()
    (folder / "log.swf").write_text(TRACE + TRACE)
    with pytest.raises(study_matrix.ChangedTraceError, match="has changed since the study was read"):
        study.run(study.units(StudyParameters(), 1, 1)[0])
    (folder / "log.swf").unlink()
    with pytest.raises(study_matrix.ChangedTraceError, match="under the same path on every machine"):
        study.run(study.units(StudyParameters(), 1, 1)[0])


# ------------------------------------------------------------------------------------------ wrong input


WITHOUT = STUDY.partition("expectations:")[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[3x8]", "[3x0]"), "give 1 to"),
        (("[3x8]", "[das3]"), "no example grid 'das3'\n"),
        (("[3x8]", "[das3]"), "did you mean 'das2'?"),
        (("small.yaml", "smal.yaml"), "no example workload 'smal.yaml'"),
        (("CM]", "{policy: MINE}]"), "for one of your own write {policy: NAME, policy_file: FILE.py}"),
        (("CM]", "{policy: FIRST, policy_file: none.py}]"), "none.py cannot be read: No such file"),
        (("CM]", "{policy: SECOND, policy_file: first.py}]"), "there is no policy 'SECOND'"),
        (("workloads: [small.yaml]", "traces: [none.swf]"), "none.swf cannot be read"),
    ],
)
def test_a_file_or_policy_that_is_not_there_is_named_at_its_place(
    folder: Path, change: tuple[str, str], words: str
) -> None:
    said = problem(folder, WITHOUT.replace(*change, 1))
    assert words in said
    assert "study.yaml:" in said


def test_jobs_that_name_a_policy_themselves_are_refused(folder: Path) -> None:
    (folder / "small.yaml").write_text(WORKLOAD + "    policy: WF\n")
    assert "name the policy WF themselves" in problem(folder, STUDY)


def test_a_policy_file_beyond_its_limit_is_refused(folder: Path) -> None:
    (folder / "first.py").write_text("#" * (POLICY_FILE_BYTES_MAX + 1))
    with pytest.raises(PolicyFileError, match="POLICY_FILE_BYTES_MAX"):
        study_of(folder, WITHOUT.replace("CM]", "{policy: FIRST, policy_file: first.py}]"))


# ------------------------------------------------------------------------------------------ findings


def finished(study: Study, numbers: dict[str, Any]) -> StudyFindings:
    """Findings from runs that are all alike but for what is said of one."""
    plain = {"metrics": dict.fromkeys(map(str, StudyMetric), 1.0), "jobs": 6, "outcomes": {"done": 6}, "void": False}
    plain |= {"notes": [], "log_sha256": None, "too_large": 0}
    units = study.units(StudyParameters(), 1, 3)
    return StudyFindings(study.matrix, [(unit, plain | numbers.get(unit.label, {})) for unit in units])  # type: ignore[misc]


def test_a_void_seed_counts_for_no_policy(folder: Path) -> None:
    findings = finished(study_of(folder), {"CM, 3x8, small, seed 2": {"void": True}})
    for policy in ("WF", "CM"):
        assert sorted(findings.values(policy, ("3x8", "small"), StudyMetric.WAIT)) == [1, 3]
    assert any("1 with 3x8, small" in note for note in findings.notes())


def test_values_that_are_the_same_are_near_each_other_also_at_zero(folder: Path) -> None:
    text = WITHOUT + "expectations: [{policy: CM, near: WF, percent: 5}, {policy: CM, below: WF}]"
    study = study_of(folder, text)
    zero = {"metrics": dict.fromkeys(map(str, StudyMetric), 0.0)}
    findings = finished(study, {unit.label: zero for unit in study.units(StudyParameters(), 1, 3)})
    assert [claim.verdict for claim in findings.claims()] == [ClaimVerdict.HOLDS, ClaimVerdict.CONTRARY]


def test_where_nothing_was_done_nothing_is_shown(folder: Path) -> None:
    empty = {"metrics": dict.fromkeys(map(str, StudyMetric)), "outcomes": {}}
    findings = finished(study_of(folder), {f"CM, 3x8, small, seed {seed}": empty for seed in (1, 2, 3)})
    claim = findings.claims()[0]
    assert claim.verdict is ClaimVerdict.UNDECIDED
    assert "nothing measured" in claim.why
    assert findings.conclusion([], parquet=False).claims


def test_parquet_has_the_rows_of_the_csv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library is an extra that a developer need not have; a stand-in takes what it is given."""
    library, writer = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    written: list[Any] = []

    class Table:
        @staticmethod
        def from_pylist(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return rows

    def write_table(table: list[dict[str, Any]], sink: io.BytesIO) -> None:
        written.extend(table)
        sink.write(b"PAR1")

    library.Table, library.parquet, writer.write_table = Table, writer, write_table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", library)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", writer)
    study_of(folder)
    run(read_study(folder / "study.yaml", parquet=True), folder, quick=True)
    assert (folder / "out" / "runs.parquet").read_bytes() == b"PAR1"
    assert [(row["policy"], str(row["seed"])) for row in written] == [
        (row["policy"], row["seed"]) for row in rows_of(folder)
    ]
