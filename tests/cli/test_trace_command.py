"""``koala trace``: what it shows of a trace, and the traces that it draws."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.simulator.traces.reader import read_trace


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["trace", *arguments])


def generated(path: Path, *arguments: str) -> Path:
    result = run("generate", *arguments, "--out", str(path))
    assert result.exit_code == 0, result.output
    assert str(path) in result.stdout.replace("\n", "")
    return path


@pytest.mark.parametrize("model", [("lublin",), ("lublin", "--by-type", "--nodes", "512"), ("poisson",)])
def test_a_drawn_trace_is_the_same_for_a_seed_packed_or_not(tmp_path: Path, model: tuple[str, ...]) -> None:
    arguments = (*model, "--jobs", "300", "--seed", "7")
    plain = generated(tmp_path / "a.swf", *arguments)
    again = generated(tmp_path / "b.swf", *arguments)
    packed = generated(tmp_path / "c.swf.gz", *arguments)
    assert plain.read_bytes() == again.read_bytes()
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert read_trace(packed).submit_s.tolist() == read_trace(plain).submit_s.tolist()
    other = generated(tmp_path / "d.swf", *model, "--jobs", "300", "--seed", "8")
    assert other.read_bytes() != plain.read_bytes()


def test_a_trace_is_drawn_like_another(tmp_path: Path) -> None:
    original = generated(tmp_path / "o.swf", "lublin", "--jobs", "2000")
    drawn = read_trace(generated(tmp_path / "f.swf", "fit", "--from", str(original), "--jobs", "50"))
    assert drawn.jobs == 50
    assert drawn.processors == 128
    assert "fitted to o, 2000 jobs; seed 1" in drawn.header["Note"]


def test_show_prints_tables_or_json(tmp_path: Path) -> None:
    path = generated(tmp_path / "p.swf", "poisson", "--jobs", "400", "--sizes", "8", "--nodes", "32")
    text = run("show", str(path)).stdout
    for word in ("p (SWF)", "400 jobs over", "32 processors, load", "median", "run time, s", "powers of two 100.0%"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())
    summary = json.loads(run("show", str(path), "--json").stdout)
    assert (summary["jobs"], summary["size"]["mean"], summary["processors"]) == (400, 8.0, 32)


def test_show_cuts_no_word_on_a_narrow_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = generated(tmp_path / "p.swf", "lublin", "--jobs", "400")
    monkeypatch.setenv("COLUMNS", "60")
    text = run("show", str(path)).stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert "gap to the next, s" in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_a_machine_must_hold_the_jobs_of_the_trace_that_is_drawn_from(tmp_path: Path) -> None:
    original = generated(tmp_path / "o.swf", "poisson", "--jobs", "50", "--sizes", "20", "--nodes", "32")
    arguments = ("generate", "fit", "--from", str(original), "--jobs", "5", "--out", str(tmp_path / "f.swf"))
    refused = run(*arguments, "--nodes", "19")
    assert refused.exit_code == 2
    assert "19 nodes: o has jobs of 20 processors; give 20 or more" in refused.stderr
    assert run(*arguments, "--nodes", "20").exit_code == 0


def test_show_tells_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.swf"
    path.write_text("1 0 -1 -1 2 -1 -1 2 -1 -1 0 1 1 -1 -1 -1 -1 -1\n")
    text = run("show", str(path)).stdout
    assert "0 jobs" in text
    assert "not run, for no run time: 1 job, first 1" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generate", "poisson", "--jobs", "5", "--sizes", "a-b", "--out", "x.swf"), ("--sizes a-b", "10-50")),
        (("generate", "poisson", "--jobs", "5", "--sizes", "5-200", "--out", "x.swf"), ("5 to 200 on 100 nodes",)),
        (("generate", "lublin", "--jobs", "5", "--nodes", "4", "--out", "x.swf"), ("a machine of 4", "8 nodes")),
        (("generate", "lublin", "--jobs", "0", "--out", "x.swf"), ("--jobs",)),
        (("generate", "lublin", "--jobs", "5", "--nodes", "99999999999", "--out", "x.swf"), ("--nodes",)),
        (("generate", "lublin", "--jobs", "5", "--out", "x.swf.xz"), ("--out x.swf.xz", "packed with gzip")),
        (
            ("generate", "poisson", "--jobs", "5", "--run", "nan", "--out", "x.swf"),
            ("--run", "'nan' is not a number"),
        ),
        (("generate", "poisson", "--jobs", "5", "--run", "1e300", "--out", "x.swf"), ("--run",)),
        (("generate", "poisson", "--jobs", "5", "--interarrival", "inf", "--out", "x.swf"), ("--interarrival",)),
        (("generate", "fit", "--jobs", "5", "--out", "x.swf"), ("--from",)),
        (("generate", "lublin", "--jobs", "5", "--out", "/no/such/folder/x.swf"), ("/no/such/folder",)),
        (("show", "/no/such/file"), ("/no/such/file",)),
    ],
)
def test_bad_input_is_named_and_exits_with_2(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.output


def test_a_drawn_trace_does_not_overwrite_the_one_it_is_drawn_from(tmp_path: Path) -> None:
    path = generated(tmp_path / "o.swf", "lublin", "--jobs", "20")
    before = path.read_bytes()
    result = run("generate", "fit", "--from", str(path), "--jobs", "5", "--out", str(path))
    assert result.exit_code == 2
    assert path.read_bytes() == before


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "numba" else really(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setitem(sys.modules, "numba", None)  # an import of it fails


def test_traces_are_drawn_and_shown_without_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    path = generated(tmp_path / "p.swf", "poisson", "--jobs", "30", "--sizes", "8", "--nodes", "32")
    shown = run("show", str(path))
    assert shown.exit_code == 0, shown.output
    assert "30 jobs over" in shown.stdout


def test_a_trace_runs_in_the_scheduler_without_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    path = generated(tmp_path / "p.swf", "poisson", "--jobs", "30", "--sizes", "8", "--nodes", "32")
    simulate = ("simulate", "--trace", str(path), "--grid", "1x32")
    done = CliRunner().invoke(koala, [*simulate, "--engine", "core"])
    assert done.exit_code == 0, done.output
    assert "30 jobs: 30 done" in done.stdout
    kernel = CliRunner().invoke(koala, [*simulate, "--policy", "easy"])
    assert kernel.exit_code == 2
    assert "numba is not installed; install them with: pip install 'koala-scheduler[kernel]'" in kernel.stderr
