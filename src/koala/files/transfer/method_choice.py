"""Which lane a way takes between two sites, found out by trying, and remembered for the pair for a while.

Over ssh the target pulls from the source if its account reaches the source's host, by the name that it has here or at
the address that this machine's ssh configuration has for that name; if not, this machine relays.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TypeAlias

import msgspec

from koala.files.errors import FilesError
from koala.files.hosts import SSH, Place
from koala.files.transfer.methods import Dock, Ends, GridFtpLane, Lane, PullLane, RelayLane, WithinLane
from koala.files.transfer.piece import Clock
from koala.files.transfer.route import Way
from koala.model.request import SiteName

# What was found out about a pair is tried again after so long, as keys and networks change.
REMEMBERED_S = 3600.0
CLIENT = "globus-url-copy"

# The second word says whether the source's file is on this machine, as what is only sent from here is.
_Pair: TypeAlias = tuple[SiteName, bool, SiteName]


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a pair: the words by which the target reaches the source, if it does, and whether
    both ends of the way have rsync."""

    at: float
    ssh: tuple[str, ...] | None
    rsync: bool


class LaneChooser:
    """Chooses lanes. ``relays`` is a directory of this machine in which processes that run here have their own."""

    def __init__(self, here: Place, relays: Path, docks: dict[SiteName, Dock], *, clock: Clock) -> None:
        self._here = here
        self._relays = relays
        self._docks = docks
        self._clock = clock
        self._tried: dict[_Pair, _Tried] = {}

    async def lane(self, way: Way, ends: Ends, *, anew: bool) -> Lane:
        """The lane for a piece; ``anew`` when the one of before brought nothing. Raises ``OSError``, and a
        ``FilesError`` where there is none."""
        if way is Way.WITHIN:
            return WithinLane(ends)
        if way is Way.GRIDFTP:
            return await self._gridftp(ends)
        if way is Way.RELAY:
            return RelayLane(ends, self._here, self.home(ends), rsync=False)
        tried = await self._try(ends, anew=anew)
        if tried.ssh is not None:
            return PullLane(ends, tried.ssh, rsync=tried.rsync)
        return RelayLane(ends, self._here, self.home(ends), rsync=tried.rsync)

    def home(self, ends: Ends) -> str:
        """Where a process that brings a copy has its directory, if it runs on this machine."""
        return str(self._relays / hashlib.sha256(f"{ends.target.site}/{ends.copy}".encode()).hexdigest()[:32])

    # ------------------------------------------------------------------------------------------ by ssh

    async def _try(self, ends: Ends, *, anew: bool) -> _Tried:
        pair = (ends.source.site, ends.source.place.is_here, ends.target.site)
        known = self._tried.get(pair)
        now = self._clock()
        if known is not None and not anew and now - known.at < REMEMBERED_S:
            return known
        source, target = ends.source.place, ends.target.place
        ssh, rsync = None, False
        if source.is_here:
            rsync = await _has(self._here, "rsync") and await _has(target, "rsync")
        else:
            for words in await self._candidates(source, target):
                answer = await self._reaches(words, ends)
                if answer is not None:
                    ssh, rsync = words, answer
                    break
        self._tried[pair] = _Tried(at=now, ssh=ssh, rsync=rsync)
        return self._tried[pair]

    async def _candidates(self, source: Place, target: Place) -> list[tuple[str, ...]]:
        """The ways in which the target may reach the source's host by ssh."""
        assert source.host is not None, "other places are not reached by ssh"
        if target.is_here:
            return [(*self._here.ssh, source.host)]
        printed = await self._here.do(f"{shlex.join([*self._here.ssh, '-G', source.host])}\n")
        known = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
        candidates: list[tuple[str, ...]] = [(*SSH, source.host)]
        if {"hostname", "user", "port"} <= known.keys():
            candidates.append((*SSH, "-p", known["port"], f"{known['user']}@{known['hostname']}"))
        return candidates

    async def _reaches(self, words: tuple[str, ...], ends: Ends) -> bool | None:
        """Whether both ends have rsync; None when the target does not get at a file like the source's."""
        file = shlex.quote(await ends.source_file())
        there = f"wc -c <{file} && if command -v rsync >/dev/null; then echo rsync; fi"
        text = (
            f"{shlex.join([*words, shlex.join(['sh', '-c', there])])} 2>/dev/null </dev/null || exit 0\n"
            "if command -v rsync >/dev/null; then echo rsync; fi\n"
        )
        printed = (await ends.target.place.do(text)).split()
        order = ends.order
        if not printed or int(printed[0]) < order.offset + order.size_bytes:
            return None
        return printed[1:] == ["rsync", "rsync"]

    # -------------------------------------------------------------------------------------------- by GridFTP

    async def _gridftp(self, ends: Ends) -> Lane:
        source, target = self._docks[ends.source.site], self._docks[ends.target.site]
        if await _has(ends.target.place, CLIENT):
            return GridFtpLane(ends, source, target, ends.target.place, None)
        if await _has(self._here, CLIENT):
            return GridFtpLane(ends, source, target, self._here, self.home(ends))
        raise FilesError(
            ends.order.file,
            ends.target.site,
            f"neither this site nor the daemon's machine has {CLIENT}; install globus-gass-copy-progs, or take "
            "file_server out of the grid file to have files moved by ssh",
        )


async def _has(place: Place, program: str) -> bool:
    return bool(await place.do(f"command -v {program} || :\n"))
