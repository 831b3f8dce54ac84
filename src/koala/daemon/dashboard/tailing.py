"""The end of what a component wrote, found without reading all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from koala.daemon.service.principal import Principal
from koala.model.api import Output

if TYPE_CHECKING:
    from koala.daemon.service.service import Service

TAIL_BYTES = 65_536
# Enough to find the end of an output of 2 ** 50 bytes, doubling and halving.
PROBES_MAX = 100
_PROBE_BYTES = 64


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The newest text of an output. It goes on at ``next_offset`` unless it is ``complete``; ``skipped_bytes`` come
    before it."""

    text: str
    skipped_bytes: int
    next_offset: int
    complete: bool


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Whose output: a component's in one run (None: the last) of a job."""

    job: int
    part: int
    run: int | None
    stream: str


async def read_tail(service: Service, who: Principal, wanted: Wanted) -> Tail:
    """At most the last ``TAIL_BYTES`` of an output, from the beginning of a line where some is left out."""

    async def read(offset: int, limit: int) -> Output:
        return await service.output(
            who,
            wanted.job,
            part=wanted.part,
            run=wanted.run,
            stream=wanted.stream,
            offset=offset,
            limit=limit,
        )

    first = await read(0, TAIL_BYTES)
    if first.complete or first.next_offset < TAIL_BYTES // 2:
        return Tail(text=first.text, skipped_bytes=0, next_offset=first.next_offset, complete=first.complete)
    low, high = first.next_offset, first.next_offset * 2  # something is written up to low; is there at high?
    ended = False
    for _ in range(PROBES_MAX):
        if ended and high - low <= _PROBE_BYTES:
            break
        at = (low + high) // 2 if ended else high
        there = (await read(at, _PROBE_BYTES)).text != ""
        if there:
            low = at
            high = high if ended else high * 2
        else:
            high = at
            ended = True
    begin = max(0, high - TAIL_BYTES)
    last = await read(begin, 2 * TAIL_BYTES)
    text = last.text.partition("\n")[2] if begin and "\n" in last.text else last.text
    return Tail(text=text, skipped_bytes=begin, next_offset=last.next_offset, complete=last.complete)
