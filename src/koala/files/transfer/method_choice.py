"""The choice of a route's method between two sites, by trying, and remembered for the pair for a while.

Over ssh the target pulls from the source if its account reaches the source's host, by the name that this machine uses
or at the address that this machine's ssh configuration has for that name. Otherwise this machine relays.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TypeAlias

import msgspec

from koala.files.errors import FilesError
from koala.files.hosts import SSH, Host
from koala.files.transfer.methods import (
    PIECE_FUNCTIONS,
    CutMethod,
    Endpoints,
    GridFtpMethod,
    Method,
    PullMethod,
    RelayMethod,
    ServerDirectory,
)
from koala.files.transfer.piece import Clock
from koala.files.transfer.route import TransferRoute
from koala.model.errors import Fault
from koala.model.request import SiteName

# The result for a pair is tested again after this time, because keys and networks change.
REMEMBERED_S = 3600.0
CLIENT = "globus-url-copy"

# The second item is True if the source's file is on this machine: such a file is only sent from here.
_Pair: TypeAlias = tuple[SiteName, bool, SiteName]


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a pair: the ssh command with which the target reaches the source, None if it does not, and
    whether both ends have rsync."""

    at: float
    ssh: tuple[str, ...] | None
    rsync: bool


class MethodChooser:
    """Chooses methods. ``relays`` is a directory of this machine with one directory for each process that runs
    here."""

    def __init__(self, here: Host, relays: Path, servers: dict[SiteName, ServerDirectory], *, clock: Clock) -> None:
        self._here = here
        self._relays = relays
        self._servers = servers
        self._clock = clock
        self._tried: dict[_Pair, _Tried] = {}

    async def method(self, route: TransferRoute, endpoints: Endpoints, *, anew: bool) -> Method:
        """Return the method for a piece; ``anew`` means that the previous method moved nothing. Raises ``OSError``,
        and ``FilesError`` if there is no method."""
        if route is TransferRoute.WITHIN:
            return CutMethod(endpoints)
        if route is TransferRoute.GRIDFTP:
            return await self._gridftp(endpoints)
        if route is TransferRoute.RELAY:
            return RelayMethod(endpoints, self._here, self.home(endpoints), rsync=False)
        tried = await self._try(endpoints, anew=anew)
        if tried.ssh is not None:
            return PullMethod(endpoints, tried.ssh, rsync=tried.rsync)
        return RelayMethod(endpoints, self._here, self.home(endpoints), rsync=tried.rsync)

    def home(self, endpoints: Endpoints) -> str:
        """Return the directory of the process that writes a copy, if it runs on this machine."""
        return str(
            self._relays / hashlib.sha256(f"{endpoints.target.site}/{endpoints.copy}".encode()).hexdigest()[:32]
        )

    # ------------------------------------------------------------------------------------------ by ssh

    async def _try(self, endpoints: Endpoints, *, anew: bool) -> _Tried:
        pair = (endpoints.source.site, endpoints.source.host.is_local, endpoints.target.site)
        known = self._tried.get(pair)
        now = self._clock()
        if known is not None and not anew and now - known.at < REMEMBERED_S:
            return known
        source, target = endpoints.source.host, endpoints.target.host
        ssh, rsync = None, False
        if source.is_local:
            rsync = await _has(self._here, "rsync") and await _has(target, "rsync")
        else:
            for words in await self._candidates(source, target):
                answer = await self._reaches(words, endpoints)
                if answer is not None:
                    ssh, rsync = words, answer
                    break
        self._tried[pair] = _Tried(at=now, ssh=ssh, rsync=rsync)
        return self._tried[pair]

    async def _candidates(self, source: Host, target: Host) -> list[tuple[str, ...]]:
        """Return the ssh commands with which the target may reach the source's host."""
        assert source.ssh_name is not None, "other hosts are not reached by ssh"
        if target.is_local:
            return [(*self._here.ssh, source.ssh_name)]
        printed = await self._here.run(f"{shlex.join([*self._here.ssh, '-G', source.ssh_name])}\n")
        known = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
        candidates: list[tuple[str, ...]] = [(*SSH, source.ssh_name)]
        if {"hostname", "user", "port"} <= known.keys():
            candidates.append((*SSH, "-p", known["port"], f"{known['user']}@{known['hostname']}"))
        return candidates

    async def _reaches(self, words: tuple[str, ...], endpoints: Endpoints) -> bool | None:
        """Return whether both ends have rsync; None if the target does not reach a file like the source's."""
        file = shlex.quote(await endpoints.source_file())
        there = f"wc -c <{file} && if command -v rsync >/dev/null; then echo rsync; fi"
        reaches = shlex.join(["koala_reaches", *words, shlex.join(["sh", "-c", there])])
        printed = (await endpoints.target.host.run(f"{PIECE_FUNCTIONS}{reaches}\n")).split()
        order = endpoints.order
        if not printed or int(printed[0]) < order.offset + order.size_bytes:
            return None
        return printed[1:] == ["rsync", "rsync"]

    # -------------------------------------------------------------------------------------------- by GridFTP

    async def _gridftp(self, endpoints: Endpoints) -> Method:
        source, target = self._servers[endpoints.source.site], self._servers[endpoints.target.site]
        if await _has(endpoints.target.host, CLIENT):
            return GridFtpMethod(endpoints, source, target, endpoints.target.host, None)
        if await _has(self._here, CLIENT):
            return GridFtpMethod(endpoints, source, target, self._here, self.home(endpoints))
        raise FilesError(
            endpoints.order.file,
            endpoints.target.site,
            f"neither this site nor the daemon's machine has {CLIENT}; install globus-gass-copy-progs, or take "
            "file_server out of the grid file to have files moved by ssh",
            Fault.SITE,
        )


async def _has(host: Host, program: str) -> bool:
    return bool(await host.run(f"command -v {program} || :\n"))
