"""The streams of components: finds the component, and returns its bytes as text that splits no character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal

from koala.daemon.offload import offload
from koala.model.api import OUTPUT_BYTES_MAX, Output
from koala.model.errors import InvalidError, NotFoundError, UnavailableError
from koala.model.messages import NEVER_HELD
from koala.sites import LiveSite, SiteError, Stream
from koala.store import NUMBER_MAX
from koala.store.rows import ComponentRow

# No UTF-8 character has more bytes, so this many always hold a whole one.
_CHARACTER_BYTES_MAX = 4
_OFFSET_MAX = NUMBER_MAX - OUTPUT_BYTES_MAX


def check_range(stream: str, offset: int, limit: int) -> None:
    """Raise ``InvalidError`` for a stream or a range that no output has."""
    if stream not in list(Stream):
        raise InvalidError(f"stream: {stream[:40]!r} is not a stream; ask for stdout or stderr")
    if not 0 <= offset <= _OFFSET_MAX:
        raise InvalidError(f"offset: {offset} is not an offset in an output; write 0 or more")
    if not 1 <= limit <= OUTPUT_BYTES_MAX:
        raise InvalidError(f"limit: write 1 to {OUTPUT_BYTES_MAX} bytes (OUTPUT_BYTES_MAX)")


def choose(job: int, components: Sequence[ComponentRow], part: int, run: int | None) -> ComponentRow:
    """Return the start of a component whose output is meant: the newest of that part in that run."""
    if not components:
        raise NotFoundError(f"job {job} has written nothing: none of its components has been started yet; try later")
    runs = sorted({component.run for component in components})
    wanted = runs[-1] if run is None else run
    if wanted not in runs:
        known = ", ".join(map(str, runs))
        raise NotFoundError(f"job {job} has no run {wanted} with components; it has: {known}")
    found = [component for component in components if component.run == wanted and component.part == part]
    if not found:
        parts = ", ".join(str(number) for number in sorted({each.part for each in components if each.run == wanted}))
        raise NotFoundError(f"job {job} has no component {part} in run {wanted}; it has: {parts}")
    return max(found, key=lambda component: (component.claimed_at, _start_number(component.token)))


def _start_number(token: str) -> int:
    last = token.rpartition(".")[2]
    return int(last) if last.isdecimal() else 0


async def read_output(
    site: LiveSite, component: ComponentRow, stream: Literal["stdout", "stderr"], offset: int, limit: int
) -> Output:
    """Return a piece of a component's output. An incomplete character is left for the next piece."""
    wanted_bytes = max(limit, _CHARACTER_BYTES_MAX)
    try:
        data = await site.output(component.token, Stream(stream), offset, wanted_bytes)
    except SiteError as error:
        raise _not_there(component, error) from None
    except OSError as error:
        raise UnavailableError(
            f"the output of component {component.token} cannot be read at {component.site} now: "
            f"{error.strerror or error}; try again"
        ) from None
    complete = component.ended_at is not None and len(data) < wanted_bytes
    text, held_back_bytes = await offload(_text_of, data, whole=complete)
    return Output(
        token=component.token,
        part=component.part,
        site=component.site,
        stream=stream,
        offset=offset,
        next_offset=offset + len(data) - held_back_bytes,
        text=text,
        complete=complete,
    )


def _text_of(data: bytes, *, whole: bool) -> tuple[str, int]:
    """Return the text, and how many bytes at its end begin a character; 0 if it is the whole output."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=whole)
    return text, len(decoder.getstate()[0])


def _not_there(component: ComponentRow, error: SiteError) -> NotFoundError:
    """Return why a site has no output of a component that it was to start."""
    what = f"component {component.token} at {component.site}"
    if component.outcome in NEVER_HELD:
        why = f" ({component.reason})" if component.reason else ""
        return NotFoundError(f"{what} never started{why}, so it wrote nothing; look at the job's other runs")
    if component.ended_at is not None:
        return NotFoundError(f"the output of {what} is gone: a site keeps what components wrote for a limited time")
    return NotFoundError(
        f"{what} has not been accepted by its site yet, so it wrote nothing; try later ({error.message})"
    )
