"""Reading and writing traces: what is taken from which field, what is told, and what is refused."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.simulator.traces import reader as traces
from koala.simulator.traces.reader import Skipped, Trace, TraceError, read_trace, trace_name
from koala.simulator.traces.summary import trace_summary
from koala.simulator.traces.writer import swf_bytes

HEADER = "; Version: 2.2\n; Computer: Example\n; UnixStartTime: 1000000000\n; MaxNodes: 8\n; MaxProcs: 16 \n;\n"


def swf(
    job: int | str = 1,
    submit: float | str = 0,
    run: float | str = 10,
    allocated: float | str = 4,
    requested: float | str = -1,
    estimate: float | str = -1,
) -> str:
    return f"{job} {submit} -1 {run} {allocated} -1 -1 {requested} {estimate} -1 1 1 1 -1 -1 -1 -1 -1\n"


def written(tmp_path: Path, text: str, name: str = "t.swf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_sizes_and_estimates_come_from_the_second_field_where_the_first_says_nothing(tmp_path: Path) -> None:
    lines = [swf(7, 0, 10, 4, 8, 60), swf(8, 5, 20, -1, 3, -1), swf(9, 5.5, 0, 0, 2, 0)]
    trace = read_trace(written(tmp_path, HEADER + "".join(lines)))
    assert trace.ids.tolist() == [7, 8, 9]
    assert trace.submit_s.tolist() == [0.0, 5.0, 5.5]
    assert trace.run_s.tolist() == [10.0, 20.0, 0.0]
    assert trace.size.tolist() == [4, 3, 2]
    assert trace.requested_s.tolist() == [60.0, 20.0, 0.0]
    assert (trace.size.dtype, trace.submit_s.dtype) == (np.dtype(np.int32), np.dtype(np.float64))
    assert (trace.skipped, trace.reordered, trace.name, trace.format) == ((), 0, "t", "SWF")


def test_the_header_says_how_large_the_machine_is_and_when_time_began(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, HEADER + swf()))
    assert (trace.processors, trace.start_unix_s) == (16, 1e9)
    assert trace.header["Computer"] == "Example"
    bare = read_trace(written(tmp_path, swf()))
    assert (bare.processors, bare.start_unix_s, bare.header) == (None, None, {})
    nodes_only = read_trace(written(tmp_path, "; MaxNodes: 8\n; MaxProcs: -1\n; UnixStartTime: 0\n" + swf()))
    assert (nodes_only.processors, nodes_only.start_unix_s) == (8, None)


def test_comments_may_begin_with_a_blank_and_stand_between_jobs(tmp_path: Path) -> None:
    text = "".join(f" {line}\n" for line in HEADER.splitlines()) + "  " + swf(1) + "\t; a remark\n  \n  " + swf(2)
    trace = read_trace(written(tmp_path, text))
    assert trace.ids.tolist() == [1, 2]
    assert (trace.processors, trace.start_unix_s) == (16, 1e9)


def test_a_job_that_cannot_be_run_is_counted_once_with_its_reason(tmp_path: Path) -> None:
    lines = [swf(1), swf(2, run=-1), swf(3, allocated=-1), swf(4, submit=-1), swf(5, submit=-1, run=-1), swf(6)]
    trace = read_trace(written(tmp_path, "".join(lines)))
    assert trace.ids.tolist() == [1, 6]
    assert trace.skipped == (
        Skipped("no submit time", 2, (4, 5)),
        Skipped("no run time", 1, (2,)),
        Skipped("no number of processors", 1, (3,)),
    )


def test_jobs_out_of_order_are_sorted_without_changing_the_order_of_an_instant(tmp_path: Path) -> None:
    lines = [swf(1, 10), swf(2, 30), swf(3, 20), swf(4, 20), swf(5, 30), swf(6, 5)]
    trace = read_trace(written(tmp_path, "".join(lines)))
    assert trace.ids.tolist() == [6, 1, 3, 4, 2, 5]
    assert trace.reordered == 3


def test_the_grid_format_counts_in_unix_time_and_has_text_in_later_fields(tmp_path: Path) -> None:
    line = "{0} {1} 5 {2} 1 -1 -1 {3} 600 -1 1 U1 G1 X1 Q1 -1 S1 S1 UNITARY -1 -1 -1 -1 -1 -1 -1 -1 VO1 P1\n"
    text = "# Grid trace\n# JobID SubmitTime ...\n" + line.format(0, 1_100_000_000, 50, 2)
    text += line.format(1, 1_100_000_030, 60, 2).replace(" ", "\t")
    for name in ("g.gwf", "g.txt"):
        trace = read_trace(written(tmp_path, text, name))
        assert (trace.format, trace.start_unix_s) == ("GWF", 1_100_000_000)
        assert trace.submit_s.tolist() == [0.0, 30.0]
        assert trace.run_s.tolist() == [50.0, 60.0]
        assert trace.requested_s.tolist() == [600.0, 600.0]
    headed = written(tmp_path, "JobID SubmitTime WaitTime RunTime\n" + line.format(3, 7, 8, 1), "h.gwf")
    assert read_trace(headed).ids.tolist() == [3]


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".any", gzip.compress)],
)
def test_a_packed_trace_is_read_whatever_its_ending(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"t.swf{ending}"
    path.write_bytes(pack((HEADER + swf()).encode()))
    assert read_trace(path).jobs == 1


def test_lines_of_windows_and_empty_lines_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_bytes((HEADER + "\n   \n" + swf() + "\n" + "; a remark\n" + swf(2)).replace("\n", "\r\n").encode())
    assert read_trace(path).ids.tolist() == [1, 2]


def test_lines_that_end_in_a_carriage_return_alone_are_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_bytes((HEADER + swf() + swf(2)).replace("\n", "\r").encode())
    assert read_trace(path).ids.tolist() == [1, 2]


def test_a_mark_of_unicode_before_the_first_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_bytes(codecs.BOM_UTF8 + (HEADER + swf()).encode())
    found = read_trace(path)
    assert (found.ids.tolist(), found.header["Version"]) == ([1], "2.2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            swf() + swf(2, submit="soon"),
            ("line 2", "field 2, the submit time, is 'soon'", "-1 for what is not known"),
        ),
        (HEADER + swf() + "1 2 3\n", ("line 8", "3 fields where SWF has 18")),
        ("1,2,3\n", ("line 1", "1 field where SWF has 18")),
        (swf() + swf(2, run="nan"), ("line 2", "the run time", "'nan'")),
        (swf(2, run="1e300"), ("line 1", "the run time", "cannot be")),
        (swf(2, allocated="1.5"), ("line 1", "allocated processors", "whole number")),
        (swf(2, allocated=3_000_000_000), ("line 1", "allocated processors", "2147483647")),
        (HEADER, ("has no jobs",)),
        ("", ("has no jobs",)),
        ("<html>\n<p>not found</p>", ("line 1", "is it a trace in SWF")),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = caught.value.for_user()
    assert all(word in message for word in (str(path), *words)), message


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_a_file_that_was_cut_off_is_told_so(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "t.swf.gz"
    path.write_bytes(pack((HEADER + swf() * 1000).encode())[:-20])
    with pytest.raises(TraceError, match="cannot be unpacked"):
        read_trace(path)


def test_limits_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, swf() * 3)
    monkeypatch.setattr(traces, "TRACE_JOBS_MAX", 2)
    with pytest.raises(TraceError, match="TRACE_JOBS_MAX"):
        read_trace(path)
    monkeypatch.setattr(traces, "TRACE_BYTES_MAX", 20)
    with pytest.raises(TraceError, match="TRACE_BYTES_MAX"):
        read_trace(path)


def test_a_name_has_no_endings() -> None:
    assert trace_name(Path("/a/KTH-SP2-1996-2.1.swf.gz")) == "KTH-SP2-1996-2.1"
    assert trace_name(Path("x.GWF")) == "x"
    assert trace_name(Path(".swf")) == ".swf"


def columns(trace: Trace) -> list[list[float]]:
    return [getattr(trace, name).tolist() for name in ("ids", "submit_s", "run_s", "size", "requested_s")]


times = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9, allow_nan=False).map(lambda value: round(value, 3)))


@given(rows=st.lists(st.tuples(times, times, st.integers(1, 10**6)), min_size=1, max_size=20), packed=st.booleans())
def test_what_is_written_reads_back_the_same(
    rows: list[tuple[float, float, int]], packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows.sort(key=lambda row: row[0])
    submit_s, run_s, size = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    trace = Trace(
        name="drawn",
        format="SWF",
        ids=np.arange(5, 5 + len(rows), dtype=np.int64),
        submit_s=submit_s,
        run_s=run_s,
        size=size.astype(np.int32),
        requested_s=np.maximum(1.0, run_s * 2),
        header={"MaxProcs": "64", "Note": "drawn"},
        start_unix_s=12345.0,
    )
    path = tmp_path_factory.mktemp("swf") / ("drawn.swf.gz" if packed else "drawn.swf")
    path.write_bytes(swf_bytes(trace, packed=packed))
    again = read_trace(path)
    assert columns(again) == columns(trace)
    assert (again.name, again.start_unix_s, again.processors) == ("drawn", 12345.0, 64)
    assert again.header["Note"] == "drawn"


def test_a_summary_tells_load_shares_and_spreads(tmp_path: Path) -> None:
    lines = [swf(1, 0, 100, 1, estimate=50), swf(2, 50, 100, 4, estimate=200), swf(3, 100, 100, 3), swf(4, run=-1)]
    summary = trace_summary(read_trace(written(tmp_path, HEADER + "".join(lines))))
    assert summary["jobs"] == 3
    assert summary["load"] == pytest.approx(800 / (16 * 100))
    assert summary["serial_share"] == pytest.approx(1 / 3)
    assert summary["power_of_two_share"] == pytest.approx(1 / 3)
    assert summary["exceeded_request_share"] == pytest.approx(1 / 3)
    assert summary["size"] == {
        "min": 1,
        "p5": 1.2,
        "p25": 2.0,
        "p50": 3.0,
        "p75": 3.5,
        "p95": 3.9,
        "max": 4,
        "mean": 8 / 3,
    }
    assert summary["interarrival_s"]["mean"] == 50.0
    assert summary["skipped"] == {"jobs": 1, "reasons": [{"reason": "no run time", "jobs": 1, "first": [4]}]}
