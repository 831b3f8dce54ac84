"""Bad documents are refused at the place that is wrong, with advice that helps."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, decoded, read_grid, read_job

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
    ("processors: 8\nwalltime: 0", 2, 11, "0 seconds", "15m"),
    ("processors: 8\nwalltime: [1]", 2, 11, "not a duration", "15m"),
    ("processors: 8\nprocessors: 9", 2, 1, "given twice; first in line 1", "keep one"),
    ("name: x", 1, 1, "does not say its size", "exactly one of components, flexible and processors"),
    ("processors: 8\nflexible: {processors: 8}", 1, 1, "flexible and processors are given", "exactly one"),
    ("components:\n- site: vu", 2, 3, "'processors' is missing", "how many processors"),
    ("components: []", 1, 13, "too few entries", "1 or more"),
    ("components:\n- {processors: 8, site: a b}", 2, 25, "'a b' is not a name", "A-Za-z0-9"),
    ("components:\n- {processors: 8, count: 600}\n- {processors: 8, count: 600}", 2, 1, "1200 comp", "lower"),
    ("components: 8", 1, 13, "list is wanted", "- "),
    ("flexible: {processors: 8, component_min: 9}", 1, 42, "9 is not between 1 and the job's 8", "change"),
    ("flexible: {processors: 8, splits: [[4, 5]]}", 1, 35, "4+5 does not divide 8", "change"),
    ("processors: 8\napplication: {executable: a, script: b}", 2, 14, "not both", "change"),
    ("processors: 8\napplication: {script: b, arguments: [a]}", 2, 37, "a script has none", "change"),
    ("processors: 8\napplication: {environment: {A: }}", 2, 29, "text is wanted", "quotes"),
    ("processors: 8\ninput_files: [a, b, {name: a}]", 2, 14, "named twice", "change"),
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
    ("sites: {a b: {processors: 1}}", 1, 9, "'a b' is not a name", "A-Za-z0-9"),
    ("sites: {a: {processors: 1, quota: 0}}", 1, 35, "quota: 0 is too small", "more than 0"),
    ("sites: {a: {processors: 1, quota: 1.5}}", 1, 35, "1.5 is too large", "1 or less"),
    ("sites: {a: {processors: 1, kind: pbs}}", 1, 34, "'pbs' is not one of the choices", "'slurm'"),
    ("sites: {a: {procs: 1, processors: 1}}", 1, 13, "'procs' is not a key", "processors"),
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
    ("&(count=0)", 1, 3, "0 is not a number of processors", "change"),
    ("&(count=1 2)", 1, 3, "takes one value", "quotes"),
    ("&(stdin=)", 1, 3, "takes one value", "quotes"),
    ('&(stdin="")', 1, 9, "empty", "remove"),
    ("&(arguments=(a))", 1, 13, "not parentheses", "remove the parentheses"),
    ("&(environment=(A))", 1, 15, "a name and a value", "(NAME value)"),
    ("&(environment=(A 1)(A 2))", 1, 3, "set twice", "change"),
    ("&(executable=x)(koalaScript=y)", 1, 17, "not both", "change"),
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
    ("&(maxWallTime=0)", 1, 15, "not between", "minutes"),
    ('&(resourceManagerContact="host/jobmanager")', 1, 26, "not a name", "grid file"),
    ("&(count=8)(koalaSplits=(4 4))", 1, 12, "for flexible jobs", "koalaFlexible=yes"),
    ("&(count=8)(koalaFlexible=yes)(koalaSplits=(4 5))", 1, 31, "4+5 does not divide", "change"),
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
    ("#!/bin/sh\n#SBATCH -n 8 --mem=4G", 2, 14, "--mem cannot be honoured", "memory"),
    ("#!/bin/sh\n#SBATCH -p short -n 8", 2, 9, "--partition cannot be honoured", "configuration"),
    ("#!/bin/sh\n#SBATCH --mail-type END", 2, 9, "--mail-type cannot be honoured", "mail"),
    ("#!/bin/sh\n#SBATCH -n 8 -N 3", 2, 14, "--nodes lays 8 tasks out", "remove --nodes"),
    ("#!/bin/sh\n#SBATCH --ntasks-per-node=3", 2, 9, "without a number of nodes", "--nodes"),
    ("#!/bin/sh\n#SBATCH -t soon", 2, 12, "'soon' is not a time", "HH:MM:SS"),
    ("#!/bin/sh\n#SBATCH -t 0", 2, 12, "not between", "remove the option"),
    ("#!/bin/sh\n#SBATCH -o out-%j", 2, 12, "no patterns", "plain file name"),
    ("#!/bin/sh\n#SBATCH --export=ALL", 2, 18, "'ALL'", "NAME=VALUE"),
    ("#!/bin/sh\n#SBATCH --export=A=1,PATH", 2, 22, "'PATH'", "NAME=VALUE"),
    ("#!/bin/sh\n#SBATCH --export='A=1,2B=1'", 2, 23, "'2B' is not the name", "NAME=VALUE"),
    ("#!/bin/sh\n#SBATCH -M a,b", 2, 12, "one site", "name one cluster"),
    ("#!/bin/sh\n#SBATCH -J 'x", 2, 12, "quotation is not closed", "close it with '"),
    ("#!/bin/sh\n#SBATCH --policy CM", 2, 9, "an option of Koala", "#KOALA --policy"),
    ("#!/bin/sh\n#KOALA --prio high", 2, 8, "'--prio' is not a known", "did you mean 'priority'"),
    ("#!/bin/sh\n#KOALA --priority urgent", 2, 19, "'urgent' is not one of", "high, low"),
    ("#!/bin/sh\n#KOALA --splits 4+4", 2, 8, "for flexible jobs", "--flexible"),
    ("#!/bin/sh\n#SBATCH -n 8\n#KOALA --flexible --splits 4-4", 3, 28, "'4-4' is not a split", "18+6"),
    ("#!/bin/sh\n#SBATCH -n 8\n#KOALA --flexible --splits 4+5", 3, 19, "4+5 does not divide", "change"),
    ("#!/bin/sh\n#KOALA --flexible=yes", 2, 19, "takes no value", "--flexible alone"),
    ("#!/bin/sh\n#KOALA --input-file :chunk", 2, 21, "empty", "NAME:chunk"),
    ("#!/bin/sh\n#SBATCH hetjob\n#SBATCH -t 5", 3, 9, "whole job", "before hetjob"),
    ("#!/bin/sh\ntrue\n#SBATCH -n 8", 3, 1, "after the first command", "move it up"),
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


def test_bytes_that_are_not_utf8_are_refused_at_their_place() -> None:
    assert decoded("é: 1".encode(), "f") == "é: 1"
    with pytest.raises(DescriptionError) as caught:
        decoded(b"name: x\nother: \xff\n", "f")
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert "0xff" in caught.value.message


def test_a_long_line_is_shown_around_the_place_that_is_wrong() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("{name: '" + "x" * 500 + "', priority: urgent, policy: '" + "y" * 500 + "'}", "job.yaml")
    _, excerpt, caret, _ = caught.value.for_user().split("\n")[:4]
    assert len(excerpt) < 120
    assert excerpt[caret.index("^") :].startswith("urgent")
