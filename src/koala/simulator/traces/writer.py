"""Writes a trace as SWF, from which ``read_trace`` restores the same columns.

The same trace gives the same bytes, compressed or not.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import numpy as np

from koala.simulator.traces.reader import Floats, Trace


def swf_bytes(trace: Trace, *, packed: bool = False) -> bytes:
    """Return a trace as a file in SWF, which ``read_trace`` reads; ``packed`` with gzip. Equal traces give equal
    bytes.

    >>> from pathlib import Path
    >>> from koala.simulator import lublin, read_trace, swf_bytes
    >>> _ = Path("model.swf.gz").write_bytes(swf_bytes(lublin(100, seed=1), packed=True))
    >>> read_trace("model.swf.gz").jobs
    100
    """
    text = "".join(f"{line}\n" for line in _lines(trace)).encode("latin-1", errors="replace")
    return gzip.compress(text, mtime=0) if packed else text


def _lines(trace: Trace) -> Iterator[str]:
    yield "; Version: 2.2"
    counts = {"MaxJobs": str(trace.jobs), "MaxRecords": str(trace.jobs)}
    start = {} if trace.start_unix_s is None else {"UnixStartTime": _shortest(trace.start_unix_s)}
    for name, value in {**trace.header, **counts, **start}.items():
        if name != "Version":
            yield f"; {name}: {value}"
    columns = zip(
        trace.ids.tolist(),
        _texts(trace.submit_s),
        _texts(trace.run_s),
        trace.size.tolist(),
        _texts(trace.requested_s),
        strict=True,
    )
    for job, submit, run, size, requested in columns:
        yield f"{job} {submit} -1 {run} {size} -1 -1 {size} {requested} -1 1 -1 -1 -1 -1 -1 -1 -1"


def _texts(values: Floats) -> list[str]:
    """Return whole seconds as integers, others with all digits needed to read the same number again."""
    if len(values) and (values == np.floor(values)).all():
        return list(map(str, values.astype(np.int64).tolist()))
    return list(map(_shortest, values.tolist()))


def _shortest(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
