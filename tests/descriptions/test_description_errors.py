"""Bad documents are refused at the place that is wrong, with advice that helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from koala.descriptions import DescriptionError, decoded, read_grid, read_job
from koala.descriptions.job.invalid import told
from koala.descriptions.workload.form import read_workload
from koala.descriptions.yaml.problems import nearest
from koala.model import request as model
from koala.model.request import InvalidRequestError

SITES = "sites: {vu: {processors: 8}, delft: {processors: 4}}\n"

# text, line, column, a part of the message, a part of the advice
BAD_JOBS_YAML = [
    ("", 1, 1, "nothing in this text", "mapping"),
    ("# only a comment\n", 1, 1, "nothing in this text", "mapping"),
    ("[1, 2]", 1, 1, "mapping is wanted", "key: value"),
    ("processors: 8\nproccessors: 9", 2, 1, "'proccessors' is not a key", "did you mean 'processors'"),
    ("processors: eight", 1, 13, "'eight' is not a whole number", "digits"),
    ("processors: 8.5", 1, 13, "8.5 is not a whole number", "digits"),
    ("processors: true", 1, 13, "True is not a whole number", "digits"),
    ("processors: 0", 1, 13, "0 is too small", "1 or more"),
    ("processors: 10000001", 1, 13, "too large", "10000000 or less"),
    ("processors: 8\npriority: urgent", 2, 11, "'urgent' is not one of the choices", "'high' or 'low'"),
    ("processors: 8\nwalltime: 1:30", 2, 11, "'1:30' is not a duration", "HH:MM:SS"),
    ("processors: 8\nwalltime: 0", 2, 11, "0 seconds", "write more than 0"),
    ("processors: 8\nwalltime: [1]", 2, 11, "not a duration", "15m"),
    ("processors: 8\nprocessors: 9", 2, 1, "given twice; first in line 1", "keep one"),
    ("name: x", 1, 1, "does not say its size", "exactly one of components, flexible, processors and tasks"),
    ("processors: 8\nflexible: {processors: 8}", 1, 1, "flexible and processors are given", "exactly one"),
    ("components:\n- site: vu", 2, 3, "'processors' is missing", "how many processors"),
    ("components: []", 1, 13, "too few entries", "1 or more"),
    ("components:\n- {processors: 8, site: a b}", 2, 25, "'a b' is not a name", "letters, digits, dots"),
    ("components:\n- {processors: 8, count: 600}\n- {processors: 8, count: 600}", 2, 1, "1200 comp", "lower"),
    ("components: 8", 1, 13, "list is wanted", "- "),
    ("flexible: {processors: 8, component_min: 9}", 1, 42, "9 is not between 1 and the job's 8", "smaller"),
    ("flexible: {processors: 8, splits: [[4, 5]]}", 1, 35, "4+5 does not divide 8", "whose sum is"),
    (
        "processors: 8\napplication: {executable: a, script: b}",
        2,
        14,
        "not both",
        "keep the executable or the script",
    ),
    (
        "processors: 8\napplication: {script: b, arguments: [a]}",
        2,
        37,
        "a script has none",
        "write them in the script",
    ),
    ("processors: 8\napplication: {environment: {A: }}", 2, 29, "text is wanted", "quotes"),
    ("processors: 8\noutputs: [a, 'out_*.txt']", 2, 14, "'out_*.txt' has '*'", "a directory"),
    ("processors: 8\noutputs: [{path: 'a[1].txt'}]", 2, 18, "not filled in", "a directory"),
    ("processors: 8\ninput_files: [a, b, {name: a}]", 2, 14, "named twice", "once"),
    ("processors: 8\napplication: {environment: {'': x}}", 2, 29, "name is empty", "OMP_NUM_THREADS"),
    ("processors: 8\napplication: {environment: {A=B: x}}", 2, 29, "'A=B' holds an equals sign", "name alone"),
    ('processors: 8\nname: "a\\x1b[2J"', 2, 7, "control character U+001B", "take it out"),
    ('processors: 8\nname: "a\\nb"', 2, 7, "control character U+000A", "one line"),
    ('processors: 8\ninput_files: [a, "b\\x7f"]', 2, 18, "control character U+007F", "take it out"),
    ('processors: 8\ninput_files: [{name: "b\\t"}]', 2, 22, "control character U+0009", "take it out"),
    ('processors: 8\napplication: {executable: "b\\x9b"}', 2, 27, "control character U+009B", "take it out"),
    ("processors: 8\nwalltime: 1e10", 2, 11, "too long", "at most 1000000000"),
    ("processors: 8\ninput_files: [{mode: chunk}]", 2, 15, "'name' is missing", "logical name"),
    ("processors: 8\nlimits: {placement_tries: 0}", 2, 27, "too small", "1 or more"),
    ("processors: 8\nname: !!python/object:os.system x", 2, 7, "tag", "take the tag out"),
    ("processors: 8\n--- \nprocessors: 8", 2, 1, "second document", "one document"),
    ("processors: *total", 1, 13, "*total stands for nothing", "anchor"),
    ("processors: 8\n\tname: x", 2, 1, "not YAML", "spaces, not tabs"),
    ("name: [a, b\nprocessors: 8", 2, 11, "not YAML", "close every ["),
    ("name: 'x\nprocessors: 8", 2, 14, "not YAML", "close the quotes"),
    ("name: a: b", 1, 8, "not YAML", "quotes"),
    ("name: \x07", 1, 7, "U+0007", "take it out"),
    ("name: \x00", 1, 7, "NUL", "text file"),
    ("name: \udcff", 1, 7, "not UTF-8", "save the file in UTF-8"),
    ('name: "\\0"\nprocessors: 8', 1, 7, "NUL", "escape"),
    ("{? [a] : b, processors: 8}", 1, 4, "where a key should", "name before the colon"),
]

BAD_GRIDS = [
    ("name: x", 1, 1, "'sites' is missing", "sites by name"),
    ("sites: {}", 1, 8, "too few entries", "1 or more"),
    ("sites: {a b: {processors: 1}}", 1, 9, "'a b' is not a name", "the first a letter or a digit"),
    ("sites: {a: {processors: 1, quota: 0}}", 1, 35, "quota: 0 is too small", "more than 0"),
    ("sites: {a: {processors: 1, quota: 1.5}}", 1, 35, "1.5 is too large", "1 or less"),
    ("sites: {a: {processors: 1, kind: pbs}}", 1, 34, "'pbs' is not one of the choices", "'slurm'"),
    ("sites: {a: {procesors: 1, processors: 1}}", 1, 13, "'procesors' is not a key", "processors"),
    (SITES + "links: {pairs: [{between: [vu, leiden]}]}", 2, 32, "no site 'leiden'", "vu, delft"),
    (SITES + "links: {pairs: [{between: [vu, delf]}]}", 2, 32, "no site 'delf'", "did you mean 'delft'"),
    (SITES + "links: {pairs: [{between: [vu, vu]}]}", 2, 27, "vu with itself", "two different"),
    (SITES + "links: {pairs: [{between: [vu]}]}", 2, 27, "no entry 2", "the two sites"),
    (
        SITES + "links:\n  pairs:\n  - between: [vu, delft]\n  - between: [delft, vu]",
        5,
        14,
        "given twice",
        "keep one",
    ),
    (SITES + "links: {default: {latency_ms: 1, latency_s: 1}}", 2, 34, "given together", "keep one"),
    (SITES + "links: {default: {bandwidth_mbit_s: 0}}", 2, 37, "0 is too small", "more than 0"),
    (SITES + "files: {f: {size: 4 Gb, replicas: [vu]}}", 2, 19, "'4 Gb' is not a size", "GiB"),
    (SITES + "files: {f: {size: 4, replicas: [vu]}}", 2, 19, "needs its unit", "size_bytes"),
    (SITES + "files: {f: {replicas: [vu]}}", 2, 9, "no size", "size: 4 GB"),
    (SITES + "files: {f: {size: 1 B, size_bytes: 1, replicas: [vu]}}", 2, 9, "given together", "one of them"),
    (SITES + "files: {f: {size: 1 B, replicas: [vu, vu]}}", 2, 39, "twice", "once"),
    (SITES + "files: {f: {size: 1 B, replicas: [x]}}", 2, 35, "no site 'x'", "vu"),
    (SITES + 'files: {"f\\e": {size: 1 B, replicas: [vu]}}', 2, 9, "control character U+001B", "take it out"),
    ('name: "a\\x07"\n' + SITES, 1, 7, "control character U+0007", "take it out"),
    ('sites: {"a\\x07": {processors: 1}}', 1, 9, "is not a name", "letters, digits"),
    (SITES + "scheduler: {claim_fraction: 0}", 2, 29, "0 is too small", "more than 0"),
    (SITES + "scheduler: {claim_fraction_min: 0.8}", 2, 33, "above claim_fraction", "at most"),
    (SITES + "scheduler: {claim_fraction: 0.2}", 2, 29, "above claim_fraction", "at most"),
    (SITES + "scheduler: {L: 0.5}", 2, 13, "'L' is not a key", "claim_fraction"),
    (SITES + "scheduler: {hold_placed: maybe}", 2, 26, "neither true nor false", "true or false"),
    (SITES + "scheduler: {scan_interval_s: .nan}", 2, 30, "not a finite number", "finite"),
    (SITES + "scheduler: {scan_interval_s: 4s}", 2, 30, "'4s' is not a number", "without quotes or a unit"),
    (SITES + "simulation: {answers: {late: 2}}", 2, 30, "2 is too large", "1 or less"),
    ("sites: {a: {processors: 1, simulation: {background: {band_low: 0.9}}}}", 1, 64, "above band_high", "at most"),
    ("sites: {a: {processors: 1, simulation: {faults: {outages: [[1, 2], [5, 4]]}}}}", 1, 68, "ends at 4", "before"),
]

BAD_RSL = [
    ("", 1, 1, "nothing in this text", "count=8"),
    ("&(count=8", 1, 10, "ends too early", "close every parenthesis"),
    ("&(count=8))", 1, 11, "')' is not expected", "close each once"),
    ("&(count>8)", 1, 8, "relation > is not supported", "="),
    ("|(count=8)(count=4)", 1, 1, "choice between requests", "one &(...)"),
    ("+(count=8)", 1, 3, "directly in a multi-request", "subrequest"),
    ("+(&(count=1))(+(&(count=2)))", 1, 15, "multi-request inside another", "one +"),
    ("&(count=8)(exectable=x)", 1, 12, "'exectable' is not known", "did you mean 'executable'"),
    ("&(count=8)(maxMemory=64)", 1, 12, "'maxMemory' is not supported", "memory"),
    ("&(count=8)(label=a)", 1, 12, "'label' is not supported", "koalaName"),
    ("&(count=8)\n (COUNT=8)", 2, 3, "given twice", "keep one"),
    ("&(count=eight)", 1, 9, "'eight' is not a whole number", "digits"),
    ("&(count=0)", 1, 3, "0 is not a number of processors", "write 1 to 10000000"),
    ("&(count=1 2)", 1, 3, "takes one value", "quotes"),
    ("&(stdin=)", 1, 3, "takes one value", "quotes"),
    ('&(stdin="")', 1, 9, "empty", "remove"),
    ("&(arguments=(a))", 1, 13, "not parentheses", "remove the parentheses"),
    ("&(environment=(A))", 1, 15, "a name and a value", "(NAME value)"),
    ("&(environment=(A 1)(A 2))", 1, 3, "set twice", "keep one of the two"),
    ("&(executable=x)(koalaScript=y)", 1, 17, "not both", "keep executable or koalaScript"),
    ("&(executable='x)", 1, 14, "quotation is not closed", "close it with '"),
    ("&(executable=^%x)", 1, 14, "quotation is not closed", "mark of your choice"),
    ("&(count=8) (* more", 1, 12, "comment is not closed", "*)"),
    ("&(executable=$(HOME)/x)", 1, 14, "'HOME' is not defined", "rsl_substitution"),
    ("&(executable=$HOME)", 1, 14, "variable is not written", "$(NAME)"),
    ("&(rsl_substitution=(A))", 1, 20, "name and a value", "rsl_substitution"),
    ("&(executable=a+b)", 1, 15, "'+' is not expected", "quotes"),
    ("+(&(koalaName=a))\n(&(koalaName=b))", 2, 4, "differs", "write it once"),
    ("&(jobType=condor)", 1, 11, "'condor' is not one of the choices", "mpi"),
    ("&(subjobStartType=loose-barrier)", 1, 19, "barrier", "strict-barrier"),
    ("&(maxTime=1)(maxWallTime=2)", 1, 3, "another time", "keep one"),
    ("&(maxWallTime=0)", 1, 15, "0 seconds", "write more than 0"),
    ('&(resourceManagerContact="host/jobmanager")', 1, 26, "not a name", "grid file"),
    ("&(count=8)(koalaSplits=(4 4))", 1, 12, "for flexible jobs", "koalaFlexible=yes"),
    ("&(count=8)(koalaFlexible=yes)(koalaSplits=(4 5))", 1, 31, "4+5 does not divide", "whose sum is"),
    ("+", 1, 1, "nothing stands after +", "+(&(count=8)"),
    ("&(count=8)\n&", 2, 1, "'&' is not expected", "quotes"),
    ("&", 1, 1, "nothing stands after &", "&(count=8)"),
    ("&(environment=(A=B 1))", 1, 17, "'=' is not expected", "quotes"),
    ('&(environment=("A=B" 1))', 1, 16, "'A=B' holds an equals sign", "name alone"),
    ('&(environment=("" 1))', 1, 16, "name is empty", "OMP_NUM_THREADS"),
    ("+(&(count=1)(koalaFlexible=yes))(&(count=1))", 1, 14, "one component", "one subrequest"),
    ("&(koalaFlexible=yes)(resourceManagerContact=vu)", 1, 22, "names no site", "remove resourceManagerContact"),
    ("&(koalaFlexible=yes)(koalaComponentMin=2)", 1, 22, "2 is not between 1", "smaller"),
    ("&(koalaFlexible=yes)(koalaComponentsMax=0)", 1, 22, "not a number of components", "write 1 to 1000"),
    ("&(koalaPlacementTries=0)", 1, 3, "0 tries are too few", "1 or more"),
    ("&(koalaName='a\x1b')", 1, 13, "control character U+001B", "take it out"),
    ("&(koalaName='a\nb')", 1, 13, "control character U+000A", "one line"),
    ("&(fileStageIn=('a\x07' b))", 1, 16, "control character U+0007", "take it out"),
    ("&(executable=a\x7f)", 1, 14, "control character U+007F", "take it out"),
    ("&(koalaChunkFiles=x)", 1, 3, "'x' is not among the files", "fileStageIn"),
]

BAD_SCRIPTS = [
    ("echo", 1, 1, "starts with #!", "#!/bin/sh"),
    ("#!/bin/sh\r\n", 1, 10, "as in DOS", "Unix"),
    ("#!/bin/sh\n#SBATCH --ntask=8", 2, 9, "'--ntask' is not a known", "did you mean 'ntasks'"),
    ("#!/bin/sh\n#SBATCH -Z 8", 2, 9, "'-Z' is not a known", "ntasks"),
    ("#!/bin/sh\n#SBATCH -n x", 2, 12, "'x' is not a whole number", "digits"),
    ("#!/bin/sh\n#SBATCH -n0", 2, 11, "0 is too small", "1 or more"),
    ("#!/bin/sh\n#SBATCH -n", 2, 9, "needs a value", "--ntasks=VALUE"),
    ("#!/bin/sh\n#SBATCH -n 1 -n 2", 2, 14, "given twice", "keep one"),
    ("#!/bin/sh\n#SBATCH 8", 2, 9, "'8' is not an option", "start with -"),
    ("#!/bin/sh\n#SBATCH -n 8 --mem=lots", 2, 20, "--mem: 'lots' is not a size of memory", "K, M, G or T"),
    ("#!/bin/sh\n#SBATCH -n 1 --cpus-per-gpu=3", 2, 14, "--cpus-per-gpu without GPUs", "--gpus-per-task"),
    ("#!/bin/sh\n#SBATCH -c 2 -G 1 --cpus-per-gpu=3", 2, 19, "given together", "keep one"),
    ("#!/bin/sh\n#SBATCH -n 4 -G 4 --gpus-per-task=2", 2, 17, "do not say the same number", "keep one"),
    ("#!/bin/sh\n#SBATCH -N x-y", 2, 12, "'x-y' is not a whole number", "digits"),
    ("#!/bin/sh\n#SBATCH --signal=soon@x", 2, 18, "'soon@x' is not a signal", "USR1@60"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --checkpoint ../x", 3, 8, "not a directory below", "such as ckpt"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --checkpoint-every 5m", 3, 8, "for jobs that save", "--checkpoint DIR"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --keep-for long", 3, 19, "'long' is not a duration", "15m"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --outputs /etc/passwd", 3, 8, "is absolute", "below the workspace"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --outputs a,b_%A_%a.txt", 3, 20, "'b_%A_%a.txt' has '%A'", "results/"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --outputs r-$SLURM_JOB_ID", 3, 18, "not filled in", "results/"),
    ("#!/bin/sh\n#SBATCH -n 1 -b 16:00", 2, 17, "'16:00' is not a time that can be read here", "now+1hour"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --outputs a,,b", 3, 20, "the value is empty", "write a value"),
    ("#!/bin/sh\n#SBATCH -n 1\n#KOALA --files ../a", 3, 16, "'../a' is not below", "--with"),
    ("#!/bin/sh\n#SBATCH -t soon", 2, 12, "'soon' is not a time", "HH:MM:SS"),
    ("#!/bin/sh\n#SBATCH -t 0", 2, 12, "0 seconds", "write more than 0"),
    ("#!/bin/sh\n#SBATCH --export=A=1,PATH", 2, 22, "'PATH'", "NAME=VALUE"),
    ("#!/bin/sh\n#SBATCH --export='A=1,2B=1'", 2, 23, "'2B' is not the name", "NAME=VALUE"),
    ("#!/bin/sh\n#SBATCH -M a,b", 2, 12, "one site", "name one cluster"),
    ("#!/bin/sh\n#SBATCH -J 'x", 2, 12, "quotation is not closed", "close it with '"),
    ("#!/bin/sh\n#SBATCH --policy CM", 2, 9, "an option of Koala", "#KOALA --policy"),
    ("#!/bin/sh\n#KOALA --prio high", 2, 8, "'--prio' is not a known", "did you mean 'priority'"),
    ("#!/bin/sh\n#KOALA --priority urgent", 2, 19, "'urgent' is not one of", "high, low"),
    ("#!/bin/sh\n#KOALA --splits 4+4", 2, 8, "for flexible jobs", "--flexible"),
    ("#!/bin/sh\n#SBATCH -n 8\n#KOALA --flexible --splits 4-4", 3, 28, "'4-4' is not a split", "18+6"),
    ("#!/bin/sh\n#SBATCH -n 8\n#KOALA --flexible --splits 4+5", 3, 19, "4+5 does not divide", "whose sum is"),
    ("#!/bin/sh\n#KOALA --flexible=yes", 2, 19, "takes no value", "--flexible alone"),
    ("#!/bin/sh\n#KOALA --input-file :chunk", 2, 21, "empty", "NAME:chunk"),
    ("#!/bin/sh\n#SBATCH -n 1\n#SBATCH hetjob\n#SBATCH -t 5", 4, 9, "whole job", "before hetjob"),
    ("#!/bin/sh\ntrue", 1, 1, "does not say the job's size", "--ntasks"),
    ("#!/bin/sh\n# SBATCH -n 6\ntrue", 1, 1, "does not say the job's size", "the space behind the # of line 2"),
    ("#!/bin/sh\n#SBATCH -n 6\n#SBATCH hetjob\ntrue", 3, 1, "says nothing", "--ntasks"),
    ("#!/bin/sh\n#SBATCH hetjob\n#SBATCH -n 6", 2, 1, "says nothing", "remove the line"),
    ("#!/bin/sh\n#SBATCH -n 6\n#SBATCH hetjob\n#SBATCH hetjob\n#SBATCH -n 6", 3, 1, "says nothing", "remove"),
    (
        "#!/bin/sh\n#SBATCH -n 6\n#KOALA --flexible\n#SBATCH hetjob\n#SBATCH -n 6",
        3,
        8,
        "one component",
        "remove --flexible",
    ),
    ("#!/bin/sh\n#SBATCH -n 6 -M vu\n#KOALA --flexible", 2, 14, "names no site", "remove --clusters"),
    ("#!/bin/sh\n#SBATCH -n 6 -J 'a\x1bb'", 2, 19, "control character U+001B", "take it out"),
    ("#!/bin/sh\n#SBATCH -n 6\n#KOALA --input-file a\x07:b", 3, 22, "control character U+0007", "take it out"),
    ("#!/bin/sh\ntrue\n#SBATCH -n 8", 1, 1, "does not say the job's size", "--ntasks=8"),
]


def check(error: DescriptionError, case: tuple[str, int, int, str, str]) -> None:
    """The error's first problem is where and what the case says."""
    _, line, column, message, advice = case
    assert (error.line, error.column) == (line, column), error.for_user()
    assert message in error.message
    assert advice in error.advice


@pytest.mark.parametrize("case", BAD_JOBS_YAML, ids=lambda case: case[3])
def test_a_bad_yaml_job_is_refused_at_its_place(case: tuple[str, int, int, str, str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(case[0], "job.yaml")
    check(caught.value, case)


@pytest.mark.parametrize("case", BAD_GRIDS, ids=lambda case: case[3])
def test_a_bad_grid_is_refused_at_its_place(case: tuple[str, int, int, str, str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_grid(case[0], "grid.yaml")
    check(caught.value, case)


@pytest.mark.parametrize("case", BAD_RSL, ids=lambda case: case[3])
def test_a_bad_rsl_job_is_refused_at_its_place(case: tuple[str, int, int, str, str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(case[0], "job.rsl")
    check(caught.value, case)


@pytest.mark.parametrize("case", BAD_SCRIPTS, ids=lambda case: case[3])
def test_a_bad_script_is_refused_at_its_place(case: tuple[str, int, int, str, str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(case[0], "job.sbatch")
    check(caught.value, case)


def test_a_layout_that_cannot_be_read_is_told_once() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("#!/bin/sh\n#SBATCH --nodes=x --gres=gpu:2 --cpus-per-gpu=3\n", "job.sbatch")
    (problem,) = caught.value.problems
    assert "'x' is not a whole number" in problem.message


def test_bytes_that_are_not_utf8_are_refused_at_their_place() -> None:
    assert decoded("é: 1".encode(), "f") == "é: 1"
    with pytest.raises(DescriptionError) as caught:
        decoded(b"name: x\nother: \xff\n", "f")
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert "0xff" in caught.value.message


def test_a_caret_stands_below_its_place_after_wide_and_narrow_characters() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("{name: '並列 ジョブ e\u0301', priority: urgent, processors: 1}", "job.yaml")
    _, excerpt, caret, _ = caught.value.for_user().split("\n")[:4]
    # Five characters before the place are twice as wide as a space, and one, an accent, has no width.
    assert caret.index("^") == excerpt.index("urgent") + 5 - 1


JOBS_WITH_NAMES = {
    "job.yaml": "policy: {policy}\ncomponents: [{{processors: 1}}, {{processors: 1, site: {site}}}]",
    "job.rsl": "&(koalaPolicy={policy})\n(resourceManagerContact={site})",
    "job.sbatch": "#!/bin/sh\n#SBATCH -n 1\n#KOALA --policy {policy}\n#SBATCH --clusters={site}",
}


@pytest.mark.parametrize("source", JOBS_WITH_NAMES)
def test_an_unknown_site_or_policy_is_refused_at_its_place_where_the_known_ones_are_given(source: str) -> None:
    text = JOBS_WITH_NAMES[source].format(policy="CN", site="delf")
    assert read_job(text, source).policy == "CN"
    with pytest.raises(DescriptionError) as caught:
        read_job(text, source, known_sites=["vu", "delft"], known_policies=["WF", "CM"])
    policy, site = caught.value.problems
    lines = text.split("\n")
    assert policy.line is not None
    assert policy.column == lines[policy.line - 1].index("CN") + 1
    assert (policy.message, policy.advice) == ("there is no policy 'CN'", "known here: WF, CM")
    assert site.line is not None
    assert site.column == lines[site.line - 1].index("delf") + 1
    assert site.message == "there is no site 'delf'"
    assert site.advice == "did you mean 'delft'? known here: vu, delft"


@pytest.mark.parametrize("source", JOBS_WITH_NAMES)
def test_a_policy_is_known_in_any_case_and_a_site_as_it_is_written(source: str) -> None:
    text = JOBS_WITH_NAMES[source].format(policy="cm", site="delft")
    assert read_job(text, source, known_sites={"delft"}, known_policies=("WF", "CM")).policy == "cm"
    with pytest.raises(DescriptionError, match="no site 'delft'"):
        read_job(text, source, known_sites={"Delft"})
    with pytest.raises(DescriptionError, match="no policy 'cm'") as caught:
        read_job(text, source, known_policies=())
    assert caught.value.advice == "known here: none"


def test_a_long_list_of_known_names_is_cut_short() -> None:
    sites = [f"s{number}" for number in range(60)]
    with pytest.raises(DescriptionError) as caught:
        read_job("components: [{processors: 1, site: delft}]", "job.yaml", known_sites=sites)
    assert caught.value.advice.endswith("s49 and 10 more")


def test_a_workload_without_applications_lists_no_known_ones() -> None:
    text = "generate: [{jobs: 1, interarrival_s: 1, mix: [{application: a, sizes: [{processors: 1}]}]}]"
    with pytest.raises(DescriptionError) as caught:
        read_workload(text, "w.yaml")
    assert caught.value.advice == "write execution_s: in the generator, or an entry under applications"


@pytest.mark.parametrize("part", ['name: "a\\x07"', 'files: {"a\\x07": {size: 1 B, replicas: 1}}'])
def test_a_control_character_in_a_name_of_a_workload_is_refused(part: str) -> None:
    with pytest.raises(DescriptionError, match=r"control character U\+0007"):
        read_workload(f"jobs: []\n{part}", "w.yaml")


def test_a_long_line_is_shown_around_the_place_that_is_wrong() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("{name: '" + "x" * 250 + "', priority: urgent, home: '" + "y" * 250 + "'}", "job.yaml")
    _, excerpt, caret, _ = caught.value.for_user().split("\n")[:4]
    assert len(excerpt) < 120
    assert excerpt[caret.index("^") :].startswith("urgent")


def test_there_is_advice_for_every_part_of_a_request_that_the_model_can_refuse() -> None:
    source = Path(model.__file__).read_text(encoding="utf-8")
    fields = {*re.findall(r'InvalidRequestError\(\s*"(\w+)"', source), "placement_tries_max", "claiming_tries_max"}
    assert {"application", "splits", "walltime_s"} <= fields
    for field in fields:
        assert told(InvalidRequestError(field, "it is wrong"), {})[1]


def test_a_short_word_is_taken_for_the_one_that_it_is_short_for() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_grid("sites: {a: {procs: 4}}\n", "grid.yaml")
    assert "did you mean 'processors'?" in caught.value.for_user()
    assert nearest("mem", ["name", "memory"]).startswith("did you mean 'memory'?")
    assert nearest("polcy", ["priority", "policy"]).startswith("did you mean 'policy'?")
