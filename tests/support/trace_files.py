"""Writes small failure traces in the archive's format, for tests."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable
from pathlib import Path

EVENT_HEADER = (
    "# event_id component_id node_id platform_id node_name event_type "
    "event_start_time event_stop_time event_end_reason"
)
NODE_HEADER = (
    "# node_id platform_id node_name node_ip node_location timezone proc_model os_name cores_per_proc num_procs "
    "mem_size disk_size up_bw down_bw metric_id notes"
)
EPOCH_S = 1_115_000_000


def event(node: int, name: str, kind: int | str, from_s: float, to_s: float, component: int = 0) -> str:
    """Return a line of the file of events, padded with blanks like the archive's."""
    cells = (0, component, node, 5, name, kind, EPOCH_S + from_s, EPOCH_S + to_s, "NULL")
    return "\t".join(f"{cell:>8}" for cell in cells)


def node_line(node: int, name: str, location: str = "NULL", cores: int | str = "NULL", sockets: int | str = 1) -> str:
    """Return a line of the file of nodes."""
    empty = ["NULL"] * 6
    cells = (node, 5, name, "NULL", location, "+3600", "NULL", "NULL", cores, sockets, *empty)
    return "\t".join(f"{cell:>6}" for cell in cells)


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write the lines into a file, packed as the end of its name requires."""
    content = ("\n".join(lines) + "\n").encode()
    if path.suffix == ".xz":
        content = lzma.compress(content)
    elif path.suffix == ".gz":
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


def write_trace(
    folder: Path, nodes: dict[str, tuple[int, list[tuple[float, float]]]], *, end_s: float, name: str = "t"
) -> Path:
    """Write a trace of nodes, each with its processors and the times at which it is down, and otherwise available
    until the end.

    A node's name is its cluster and its own name, with a slash between.
    """
    events, lines = [EVENT_HEADER], [NODE_HEADER]
    for number, (node, (processors, downs)) in enumerate(nodes.items()):
        lines.append(node_line(number, node, node.rpartition("/")[0], sockets=processors))
        at_s = 0.0
        for from_s, to_s in downs:
            if from_s > at_s:
                events.append(event(number, node, 1, at_s, from_s))
            events.append(event(number, node, 0, from_s, to_s))
            at_s = to_s
        if at_s < end_s:
            events.append(event(number, node, 1, at_s, end_s))
    write_lines(folder / f"{name}_node.tab", lines)
    return write_lines(folder / f"{name}_event_trace.tab", events)
