"""Reads a failure trace in the tab format of the Failure Trace Archive: which nodes were unavailable, and when.

The file of events (``event_trace``) is read as a stream; the file of nodes beside it, if there is one, has the
processors and the cluster of each node. ``koala.simulator.traces.node_mapping`` assigns nodes to sites.
"""

from __future__ import annotations

import gzip
import lzma
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

EVENTS_MAX = 100_000_000
NODES_MAX = 1_000_000
LINE_BYTES_MAX = 65_536
NODE_PROCESSORS_MAX = 1_000_000
_CHUNK_BYTES = 1 << 20

# The columns in the archive's order; a header line, which starts with #, may give them in another order.
_EVENT_COLUMNS = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "event_start_time",
    "event_stop_time",
    "event_end_reason",
)
_NODE_COLUMNS = (
    "node_id",
    "platform_id",
    "node_name",
    "node_ip",
    "node_location",
    "timezone",
    "proc_model",
    "os_name",
    "cores_per_proc",
    "num_procs",
)
_UNAVAILABLE, _AVAILABLE = b"0", b"1"
_UNKNOWN = frozenset({b"", b"NULL", b"null"})
_SUFFIXES = ("", ".gz", ".xz")

Progress = Callable[[int, int], None]


class FailureTraceError(ValueError):
    """An unusable failure trace: the message names the file, the line if there is one, and what to do.

    >>> from pathlib import Path
    >>> from koala.simulator import FailureTraceError, read_failure_trace
    >>> _ = Path("event_trace.tab").write_text("1\\t2\\t3\\n")
    >>> try:
    ...     read_failure_trace("event_trace.tab")
    ... except FailureTraceError as error:
    ...     print(error)
    event_trace.tab, line 1: 3 columns where at least 8 are wanted; columns are separated by tabs
    """

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


class TraceNode:
    """One machine of a trace. ``down_s`` contains the times at which it was unavailable: from, to, from, to, ...

    They are ordered, disjoint and in seconds since the trace's epoch; ``cluster`` is the machine's cluster.
    """

    __slots__ = ("cluster", "down_s", "name", "processors")

    def __init__(self, name: str, cluster: str, processors: int) -> None:
        self.name = name
        self.cluster = cluster
        self.processors = processors
        self.down_s = array("d")


class FailureTrace(NamedTuple):
    """The content of a failure trace: its nodes in the order of their first events, and the time that the events
    span.

    >>> from pathlib import Path
    >>> from koala.simulator import read_failure_trace
    >>> _ = Path("event_trace.tab").write_text("0\\t0\\t0\\t1\\tG/delft/n1\\t0\\t1200\\t4800\\tNULL\\n")
    >>> trace = read_failure_trace("event_trace.tab")
    >>> [node.name for node in trace.nodes], trace.events, trace.end_s - trace.begin_s
    (['G/delft/n1'], 1, 3600.0)
    """

    nodes: tuple[TraceNode, ...]
    events: int
    begin_s: float
    end_s: float


def read_failure_trace(path: str | Path, progress: Progress | None = None) -> FailureTrace:
    """Return a trace of the Failure Trace Archive, from its file of events and the file of nodes beside it.

    The files may be plain, ``.gz`` or ``.xz``.

    A file of states (``event_state``) has no times of its own: the events beside it are read. A node is unavailable
    while any of its components is; times without an event count as available. ``progress`` is called now and then
    with the bytes read, and those of the whole file. Raises ``FailureTraceError`` for a file that is no such trace,
    and ``OSError`` for a file that cannot be read. ``SiteFailures`` puts the nodes onto a grid.

    >>> from pathlib import Path
    >>> from koala.simulator import read_failure_trace
    >>> _ = Path("event_trace.tab").write_text("0\\t0\\t0\\t1\\tG/delft/n1\\t0\\t1200\\t4800\\tNULL\\n")
    >>> [list(node.down_s) for node in read_failure_trace("event_trace.tab").nodes]
    [[1200.0, 4800.0]]
    """
    path = _events_of(Path(path))
    node_file = _beside(path, "event_trace", "node")
    known = {} if node_file is None else _read_nodes(node_file)
    events = _Events(path, known)
    for number, line in _lines(path, progress):
        events.take(number, line)
    return events.trace()


# ------------------------------------------------------------------------------------------- the files


def _events_of(path: Path) -> Path:
    if "event_state" not in path.name:
        return path
    events = _beside(path, "event_state", "event_trace")
    if events is None:
        raise FailureTraceError(
            path, "a file of states has no times, and there is no event_trace beside it; name that"
        )
    return events


def _beside(path: Path, part: str, other: str) -> Path | None:
    """Return the file that belongs to this one: ``g5k_node.tab.gz`` to ``g5k_event_trace.tab.xz``."""
    if part not in path.name:
        return None
    plain = path.name.removesuffix(".gz").removesuffix(".xz").replace(part, other)
    found = (path.with_name(plain + suffix) for suffix in _SUFFIXES)
    return next((each for each in found if each.is_file()), None)


def _lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers; raise FailureTraceError if one is too long or the file is truncated or
    corrupt."""
    number, rest = 0, b""
    try:
        with path.open("rb") as raw, _unpacked(path, raw) as file:
            size_bytes = path.stat().st_size
            while chunk := file.read(_CHUNK_BYTES):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    number += 1
                    yield number, line
                if len(rest) > LINE_BYTES_MAX:
                    raise FailureTraceError(
                        path,
                        f"longer than {LINE_BYTES_MAX} bytes (LINE_BYTES_MAX); is this a failure trace?",
                        number + 1,
                    )
                if progress is not None:
                    progress(raw.tell(), size_bytes)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise FailureTraceError(
            path, f"it cannot be unpacked ({error}); fetch the file again", number or None
        ) from None
    if rest:
        yield number + 1, rest


def _unpacked(path: Path, raw: IO[bytes]) -> Any:
    if path.suffix == ".xz":
        return lzma.open(raw)
    return gzip.open(raw) if path.suffix == ".gz" else raw


class _Columns:
    """The positions of the relevant columns, by the header or by the archive's usual order."""

    def __init__(self, path: Path, usual: tuple[str, ...], wanted: tuple[str, ...]) -> None:
        self._path = path
        self._usual = usual
        self._wanted = wanted
        self.at = [usual.index(name) for name in wanted]
        self.count = max(self.at) + 1

    def header(self, number: int, line: bytes) -> None:
        """Take a comment line: if it names columns, they apply to the following lines."""
        names = line.decode("utf-8", "replace").lstrip("#").split()
        if self._usual[0] not in names:
            return
        missing = [name for name in self._wanted if name not in names]
        if missing:
            raise FailureTraceError(self._path, f"the header has no column {missing[0]}", number)
        self.at = [names.index(name) for name in self._wanted]
        self.count = max(self.at) + 1

    def fields(self, number: int, line: bytes) -> list[bytes]:
        """Return the relevant fields, in the order wanted."""
        cells = line.split(b"\t")
        if len(cells) < self.count:
            raise FailureTraceError(
                self._path,
                f"{len(cells)} columns where at least {self.count} are wanted; columns are separated by tabs",
                number,
            )
        return [cells[place].strip() for place in self.at]


# ------------------------------------------------------------------------------------------- the nodes


class _NodeText(NamedTuple):
    name: str
    location: str
    processors: int


def _read_nodes(path: Path) -> dict[tuple[bytes, bytes], _NodeText]:
    """Return the nodes of the file of nodes, by platform and number."""
    wanted = ("platform_id", "node_id", "node_name", "node_location", "cores_per_proc", "num_procs")
    columns = _Columns(path, _NODE_COLUMNS, wanted)
    nodes: dict[tuple[bytes, bytes], _NodeText] = {}
    for number, line in _lines(path):
        if line.startswith(b"#"):
            columns.header(number, line)
        elif line.strip():
            platform, node, name, location, cores, sockets = columns.fields(number, line)
            processors = _count(path, number, "cores_per_proc", cores) * _count(path, number, "num_procs", sockets)
            nodes[platform, node] = _NodeText(_known(name), _known(location), processors)
            if len(nodes) > NODES_MAX:
                raise FailureTraceError(path, f"more than {NODES_MAX:,} nodes (NODES_MAX)", number)
    return nodes


def _known(cell: bytes) -> str:
    return "" if cell in _UNKNOWN else cell.decode("utf-8", "replace")


def _count(path: Path, number: int, column: str, cell: bytes) -> int:
    if cell in _UNKNOWN:
        return 1
    if not cell.isdigit() or not 1 <= (count := int(cell[:20])) <= NODE_PROCESSORS_MAX:
        raise FailureTraceError(
            path,
            f"{column} is {_shown(cell)}; write 1 to {NODE_PROCESSORS_MAX} (NODE_PROCESSORS_MAX), or NULL",
            number,
        )
    return count


def _shown(cell: bytes) -> str:
    return repr(cell[:40].decode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------ the events


class _Events:
    """Reads the lines of the file of events and keeps the times at which each node was unavailable."""

    def __init__(self, path: Path, known: dict[tuple[bytes, bytes], _NodeText]) -> None:
        self._path = path
        self._known = known
        wanted = ("platform_id", "node_id", "node_name", "event_type", "event_start_time", "event_stop_time")
        self._columns = _Columns(path, _EVENT_COLUMNS, wanted)
        self._nodes: dict[tuple[bytes, bytes], TraceNode] = {}
        self._events = 0
        self._begin_s = math.inf
        self._end_s = -math.inf

    def take(self, number: int, line: bytes) -> None:
        """Take one line: an event, a comment or nothing."""
        if line.startswith(b"#"):
            self._columns.header(number, line)
            return
        if not line.strip():
            return
        platform, node_id, name, kind, start, stop = self._columns.fields(number, line)
        from_s, to_s = self._time_s(number, start), self._time_s(number, stop)
        if to_s < from_s:
            raise FailureTraceError(
                self._path, f"the event ends at {to_s:.0f}, before it starts at {from_s:.0f}", number
            )
        node = self._nodes.get((platform, node_id))
        if node is None:
            node = self._new_node(number, platform, node_id, name)
        if kind == _UNAVAILABLE:
            node.down_s.append(from_s)
            node.down_s.append(to_s)
        elif kind != _AVAILABLE:
            raise FailureTraceError(
                self._path, f"event_type is {_shown(kind)}; only 0 (unavailable) and 1 (available) are known", number
            )
        self._events += 1
        if from_s < self._begin_s:
            self._begin_s = from_s
        if to_s > self._end_s:
            self._end_s = to_s
        if self._events > EVENTS_MAX:
            raise FailureTraceError(self._path, f"more than {EVENTS_MAX:,} events (EVENTS_MAX)", number)

    def _time_s(self, number: int, cell: bytes) -> float:
        try:
            time_s = float(cell)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise FailureTraceError(
                self._path, f"{_shown(cell)} is no time; write seconds since the epoch, as a number", number
            )
        return time_s

    def _new_node(self, number: int, platform: bytes, node_id: bytes, name: bytes) -> TraceNode:
        if len(self._nodes) >= NODES_MAX:
            raise FailureTraceError(self._path, f"more than {NODES_MAX:,} nodes (NODES_MAX)", number)
        told = self._known.get((platform, node_id), _NodeText("", "", 1))
        own = _known(name) or told.name or f"node {_known(node_id)}"
        cluster = told.location or own.rpartition("/")[0]
        node = self._nodes[platform, node_id] = TraceNode(own, cluster, told.processors)
        return node

    def trace(self) -> FailureTrace:
        """Return the trace; raise FailureTraceError if it is empty."""
        if not self._events:
            raise FailureTraceError(self._path, "it has no events; name the file event_trace.tab of a failure trace")
        for node in self._nodes.values():
            node.down_s = _joined(node.down_s)
        return FailureTrace(tuple(self._nodes.values()), self._events, self._begin_s, self._end_s)


def _joined(times_s: array[float]) -> array[float]:
    """Return the same periods in order, with overlapping or adjacent ones merged and empty ones removed."""
    joined = array("d")
    for from_s, to_s in sorted(zip(times_s[::2], times_s[1::2], strict=True)):
        if to_s <= from_s:
            continue
        if joined and from_s <= joined[-1]:
            joined[-1] = max(joined[-1], to_s)
        else:
            joined.extend((from_s, to_s))
    return joined
