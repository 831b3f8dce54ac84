"""Workload traces: reads SWF (Parallel Workloads Archive) and GWF (Grid Workloads Archive) into arrays.

A file may be plain or compressed with gzip, xz or bzip2. Missing values are counted and reported, wrong values are
errors with the line's number. ``koala.simulator.traces.writer`` writes traces, ``koala.simulator.trace_run`` runs
them.
"""

from __future__ import annotations

import bz2
import codecs
import dataclasses
import gzip
import lzma
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

TRACE_BYTES_MAX = 4 * 1024**3
TRACE_JOBS_MAX = 20_000_000
# A remark names at most this many job ids, and counts the others.
FIRST_IDS = 5
SECONDS_MAX = 2.0**52
SIZE_MAX = 2**31 - 1

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]

_MAGIC = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))
_UNPACKING = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error)

# The relevant fields have the same positions in both formats; the definitions number the first as 1.
_FIELDS = {
    0: "job number",
    1: "submit time",
    3: "run time",
    4: "allocated processors",
    7: "requested processors",
    8: "requested time",
}
_WHOLE = frozenset({0, 4, 7})
_MOST = {4: SIZE_MAX, 7: SIZE_MAX}
# The user has the same position in both, too, and may be a word.
_USER = 11
USER_CHARACTERS_MAX = 64
# The same fields as columns of the resulting table.
_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_TIME = range(len(_FIELDS))


class TraceError(ValueError):
    """An unusable trace: the message names the file, the line if there is one, and the error.

    >>> from pathlib import Path
    >>> from koala.simulator import TraceError, read_trace
    >>> _ = Path("short.swf").write_text("1 0 -1 60 4\\n")
    >>> try:
    ...     read_trace("short.swf")
    ... except TraceError as error:
    ...     print(error)
    short.swf, line 1: 5 fields where SWF has 18; is it a trace in SWF?
    """

    def __init__(self, path: Path | str, problem: str, line: int | None = None) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


class Format(NamedTuple):
    """A trace format: how comments start, and the least number of fields in a line."""

    name: str
    comment: str
    fields_min: int


SWF = Format("SWF", ";", 18)
GWF = Format("GWF", "#", 11)


class Skipped(NamedTuple):
    """Jobs that cannot be run, with the reason and the first ids."""

    reason: str
    jobs: int
    first: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """The jobs of a trace by submission, in columns (numpy arrays) of one length.

    - ``ids``: the numbers of the jobs in the file;
    - ``submit_s``: since the beginning of the trace, which is ``start_unix_s`` if that is known;
    - ``run_s``: the run time;
    - ``size``: the allocated processors, if unknown the requested ones;
    - ``requested_s``: the user's estimate, if unknown the run time;
    - ``users``: the users of the jobs, as the file names them, if requested;
    - ``skipped``: the jobs of the file that cannot be run, by reason; ``reordered``: how many followed a later one;
    - ``header``: the values in the comments, by name: MaxProcs, UnixStartTime and others.

    >>> from koala.simulator import poisson
    >>> trace = poisson(1000, 1, interarrival_mean_s=60, run_mean_s=600, size_min=1, size_max=16, nodes=100)
    >>> trace.jobs, trace.processors
    (1000, 100)
    >>> large = trace.chosen(trace.size > 8)
    >>> int(large.size.min())
    9
    """

    name: str
    format: str
    ids: Ids
    submit_s: Floats
    run_s: Floats
    size: Integers
    requested_s: Floats
    users: npt.NDArray[np.str_] | None = None
    header: dict[str, str] = dataclasses.field(default_factory=dict)
    start_unix_s: float | None = None
    skipped: tuple[Skipped, ...] = ()
    reordered: int = 0

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.ids)

    @property
    def processors(self) -> int | None:
        """The size of the machine by the header: MaxProcs, else MaxNodes; None if it has neither."""
        for field in ("MaxProcs", "MaxNodes"):
            text = self.header.get(field, "").split()
            if text and text[0].isdigit() and int(text[0][:18]) > 0:
                return int(text[0][:18])
        return None

    def chosen(self, rows: npt.NDArray[Any]) -> Trace:
        """Return the same trace with these rows only: a mask or their numbers in order."""
        columns = {name: getattr(self, name)[rows] for name in ("ids", "submit_s", "run_s", "size", "requested_s")}
        return dataclasses.replace(self, **columns, users=None if self.users is None else self.users[rows])


def read_trace(path: str | Path, *, users: bool = False) -> Trace:
    """Return the trace in a file, in SWF or GWF, plain or compressed with gzip, xz or bzip2; needs numpy.

    A job without a submit time, run time or size (written as -1) cannot be run and is counted in ``skipped``; a job
    that follows a later one is put in its place and counted in ``reordered``. ``users`` reads the users of the jobs
    as well. Raises ``TraceError`` for a file that is no trace, and ``OSError`` for a file that cannot be read.

    >>> from pathlib import Path
    >>> from koala.simulator import read_trace
    >>> lines = [
    ...     "; MaxProcs: 8",
    ...     "1 0 -1 60 8 -1 -1 8 90 -1 1 7 -1 -1 -1 -1 -1 -1",
    ...     "2 5 -1 60 4 -1 -1 4 90 -1 1 7 -1 -1 -1 -1 -1 -1",
    ... ]
    >>> _ = Path("two.swf").write_text("\\n".join(lines))
    >>> trace = read_trace("two.swf")
    >>> trace.jobs, trace.processors, trace.run_s.tolist()
    (2, 8, [60.0, 60.0])
    """
    path = Path(path)
    lines = _content(path).split("\n")
    found = _format_of(path, lines)
    rows = [line for line in lines if line and not line.isspace() and not _is_comment(line, found)]
    if rows and rows[0].split(maxsplit=1)[0].casefold() == "jobid":
        del rows[0]  # some files of the archive name the columns without a comment sign
    if not rows:
        raise TraceError(path, f"it has no jobs; is it a trace in {found.name}?")
    if len(rows) > TRACE_JOBS_MAX:
        raise TraceError(path, f"{len(rows):,} jobs are more than {TRACE_JOBS_MAX:,} (TRACE_JOBS_MAX); divide it")
    table = _numbers(path, found, rows, lines)
    whose = np.array([_user(row) for row in rows]) if users else None
    return _trace(path, found, _header(lines, found), table, whose)


def _user(row: str) -> str:
    """Return the user of a line's job; nobody if the line has none."""
    cells = row.split(maxsplit=_USER + 1)
    return cells[_USER][:USER_CHARACTERS_MAX] if len(cells) > _USER else ""


# ------------------------------------------------------------------------------------------- the file


def _content(path: Path) -> str:
    """Return the decompressed text. Names in it may be in any encoding; the relevant parts are ASCII."""
    try:
        with path.open("rb") as raw, _unpacked(raw) as file:
            content: bytes = file.read(TRACE_BYTES_MAX + 1)
    except _UNPACKING as error:
        raise TraceError(path, f"it cannot be unpacked ({error}); fetch the file again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TraceError(path, f"it cannot be unpacked ({error}); fetch the file again") from None
    if len(content) > TRACE_BYTES_MAX:
        raise TraceError(path, f"it has more than {TRACE_BYTES_MAX:,} bytes (TRACE_BYTES_MAX); divide it")
    text = content.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _unpacked(raw: IO[bytes]) -> Any:
    start = raw.read(6)
    raw.seek(0)
    return next((opened(raw) for magic, opened in _MAGIC if start.startswith(magic)), raw)


def _format_of(path: Path, lines: Sequence[str]) -> Format:
    """Return the format by the file's name, else by the start of its first line."""
    suffixes = {suffix.casefold() for suffix in path.suffixes}
    for each in (SWF, GWF):
        if f".{each.name.casefold()}" in suffixes:
            return each
    first = next((line for line in lines if line and not line.isspace()), "").lstrip()
    return GWF if first.startswith("#") or first.casefold().startswith("jobid") else SWF


def _is_comment(line: str, found: Format) -> bool:
    """Return True if a line is a comment, with or without a leading blank."""
    return line.startswith(found.comment) or (line[:1].isspace() and line.lstrip().startswith(found.comment))


def _header(lines: Sequence[str], found: Format) -> dict[str, str]:
    """Return the ``name: value`` pairs in the comments before the first job; the first value of a repeated name
    counts."""
    header: dict[str, str] = {}
    for line in lines:
        if not _is_comment(line, found):
            if line and not line.isspace():
                break
            continue
        name, colon, value = line.lstrip(found.comment + " \t").partition(":")
        if colon and name and not name[0].isspace():
            header.setdefault(name.strip(), value.strip())
    return header


# ------------------------------------------------------------------------------------------- the numbers


def _numbers(path: Path, found: Format, rows: Sequence[str], lines: Sequence[str]) -> Floats:
    """Return the relevant fields, one row for each job; raise TraceError with the line if one is not a number."""
    columns = (*_FIELDS, found.fields_min - 1) if found is SWF else tuple(_FIELDS)
    try:
        table: Floats = np.loadtxt(rows, dtype=np.float64, usecols=columns, comments=None, ndmin=2)
    except ValueError:
        table = np.full((1, len(columns)), np.nan)
    table = table[:, : len(_FIELDS)]
    if not (np.abs(table) <= SECONDS_MAX).all() or (table[:, [_ALLOCATED, _REQUESTED]] > SIZE_MAX).any():
        raise _first_problem(path, found, lines)
    sizes = table[:, [_ALLOCATED, _REQUESTED, _ID]]
    if (sizes != np.floor(sizes)).any():
        raise _first_problem(path, found, lines)
    return table


def _first_problem(path: Path, found: Format, lines: Sequence[str]) -> TraceError:
    """Return the error in the first bad line; called only if there is one."""
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if not cells or _is_comment(line, found) or cells[0].casefold() == "jobid":
            continue
        if len(cells) < found.fields_min:
            has = f"{len(cells)} field{'' if len(cells) == 1 else 's'}"
            wanted = f"{'at least ' if found is GWF else ''}{found.fields_min}"
            return TraceError(path, f"{has} where {found.name} has {wanted}; is it a trace in {found.name}?", number)
        for place, field in _FIELDS.items():
            problem = _cell_problem(cells[place], whole=place in _WHOLE, most=_MOST.get(place, SECONDS_MAX))
            if problem:
                shown = f"field {place + 1}, the {field}, is {cells[place][:40]!r}"
                return TraceError(path, f"{shown}: {problem}", number)
    return TraceError(path, f"its fields cannot be read as numbers; is it a trace in {found.name}?")


def _cell_problem(cell: str, *, whole: bool, most: float) -> str:
    try:
        value = float(cell)
    except ValueError:
        return "that is no number; write -1 for what is not known"
    if not -SECONDS_MAX <= value <= most:
        return f"that cannot be; the most is {most:.0f}"
    if whole and value != int(value):
        return "write a whole number"
    return ""


# ------------------------------------------------------------------------------------------- the jobs


def _trace(
    path: Path, found: Format, header: dict[str, str], table: Floats, users: npt.NDArray[np.str_] | None
) -> Trace:
    ids = table[:, _ID].astype(np.int64)
    size = np.where(table[:, _ALLOCATED] > 0, table[:, _ALLOCATED], table[:, _REQUESTED])
    # Each job is counted under the first reason that keeps it from being run.
    reasons = (
        ("no submit time", table[:, _SUBMIT] < 0),
        ("no run time", table[:, _RUN] < 0),
        ("no number of processors", size < 1),
    )
    left_out = np.zeros(len(table), dtype=bool)
    skipped = []
    for reason, mask in reasons:
        new = mask & ~left_out
        if new.any():
            skipped.append(Skipped(reason, int(new.sum()), tuple(ids[new][:FIRST_IDS].tolist())))
            left_out |= new
    kept = table[~left_out]
    submit_s = kept[:, _SUBMIT]
    reordered = int((submit_s < np.maximum.accumulate(submit_s)).sum()) if len(kept) else 0
    order = np.argsort(submit_s, kind="stable") if reordered else slice(None)
    kept = kept[order]
    run_s = kept[:, _RUN]
    requested_s = kept[:, _REQUESTED_TIME]
    start_unix_s, submit_s = _beginning(found, header, kept[:, _SUBMIT])
    return Trace(
        name=trace_name(path),
        format=found.name,
        ids=ids[~left_out][order],
        submit_s=np.ascontiguousarray(submit_s),
        run_s=np.ascontiguousarray(run_s),
        size=size[~left_out][order].astype(np.int32),
        requested_s=np.where(requested_s > 0, requested_s, run_s),
        users=None if users is None else users[~left_out][order],
        header=header,
        start_unix_s=start_unix_s,
        skipped=tuple(skipped),
        reordered=reordered,
    )


def _beginning(found: Format, header: dict[str, str], submit_s: Floats) -> tuple[float | None, Floats]:
    """Return when time 0 was, and the submit times since then; GWF counts in Unix time, without a header that says
    so."""
    if found is GWF and len(submit_s):
        return float(submit_s[0]), submit_s - submit_s[0]
    try:
        start_unix_s = float(header.get("UnixStartTime", "").split()[0])
    except (IndexError, ValueError):
        return None, submit_s
    return (start_unix_s if 0 < start_unix_s <= SECONDS_MAX else None), submit_s


def trace_name(path: Path) -> str:
    """Return the name of a trace: its file's name without the suffixes of formats and compression.

    >>> from pathlib import Path
    >>> from koala.simulator import trace_name
    >>> trace_name(Path("logs/KTH-SP2.swf.gz"))
    'KTH-SP2'
    """
    name = path.name
    for suffix in (".gz", ".xz", ".bz2", ".swf", ".gwf"):
        if name.casefold().endswith(suffix):
            name = name[: -len(suffix)]
    return name or path.name
