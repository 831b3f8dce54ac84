"""Brings the standard output and standard error of a job's components to this machine as files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JobSummary

Stream = Literal["stdout", "stderr"]
_STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
# Each answer takes a call at a site: at most this many are under way at a time.
BROUGHT_AT_ONCE = 8


class Written(NamedTuple):
    """A stream of a component in the last run of its job, and its path here."""

    job: int
    part: int
    stream: Stream
    here: Path


class Brought(NamedTuple):
    """A stream that was fetched, with its site and its size; or the ``problem`` that prevented it. A stream that is
    ``gone`` is no longer at its site."""

    written: Written
    site: str = ""
    size_bytes: int = 0
    problem: str = ""
    gone: bool = False


def written_by(client: Client, job: JobSummary, directory: Path) -> Iterator[Written]:
    """Yield the streams of a job whose application began; for an array the streams of its elements, below their
    indices."""
    if job.elements is not None:
        for element in sorted(client.each_job(array=job.id), key=lambda each: each.array_index or 0):
            yield from written_by(client, element, directory / str(element.array_index))
    elif job.runs:
        for part in range(len(job.places)):
            home = directory / f"component-{part}" if part else directory
            for stream in _STREAMS:
                yield Written(job.id, part, stream, home / f"{stream}.txt")


def bring(client: Client, wanted: Iterable[Written]) -> Sequence[Brought]:
    """Fetch all streams, replacing files of these names here; a failed one does not stop the others."""
    with ThreadPoolExecutor(BROUGHT_AT_ONCE) as pool:
        return list(pool.map(lambda each: _bring(client, each), wanted))


def _bring(client: Client, wanted: Written) -> Brought:
    from koala.client import ClientError, NotFoundError
    from koala.client.fetching import told_of

    part = wanted.here.with_name(f".{wanted.here.name}.part")
    try:
        with told_of(wanted.here):
            wanted.here.parent.mkdir(parents=True, exist_ok=True)
            try:
                site = _write(client, wanted, part)
                size_bytes = part.stat().st_size
                part.replace(wanted.here)
            finally:
                part.unlink(missing_ok=True)
    except NotFoundError as error:
        return Brought(wanted, problem=error.message, gone=True)
    except ClientError as error:
        return Brought(wanted, problem=error.message)
    return Brought(wanted, site, size_bytes)


def _write(client: Client, wanted: Written, path: Path) -> str:
    """Write all of a stream, piece by piece. Returns the site that had it."""
    from koala.model.api import OUTPUT_BYTES_MAX

    offset = 0
    with path.open("wb") as file:
        while True:
            piece = client.output(
                wanted.job, part=wanted.part, stream=wanted.stream, offset=offset, limit=OUTPUT_BYTES_MAX
            )
            file.write(piece.text.encode())
            if piece.complete or piece.next_offset == offset:
                return piece.site
            offset = piece.next_offset
