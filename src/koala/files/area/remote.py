"""The file area of a site whose files this machine does not see: every step is one shell script run at the site.

Nothing is installed there; SHA-256 comes from the usual program that the site has. The scripts call functions in
``area.sh``. ``koala.files.transfer.remote_piece`` moves the bytes there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shlex
from collections.abc import Mapping

from koala.files.area.interface import FileArea
from koala.files.area.layout import (
    COPIES,
    DOUBTS,
    HOLDERS,
    INCOMING,
    REPLICAS,
    TRASH,
    decode,
    encode,
    fresh_name,
    replica_path,
)
from koala.files.area.workspace import COMPONENTS, CollectedFile, refusal
from koala.files.checksums import is_checksum
from koala.files.errors import LargeOutputError, PathError
from koala.files.hosts import SCRIPT_S, Host, quoted_path, read_limit_s, shell_functions
from koala.files.remote_process import PROCESS_FUNCTIONS
from koala.files.sources import Stamp
from koala.model.launch import WORK
from koala.model.messages import Token, TransferId
from koala.model.outputs import CollectLimits
from koala.model.request import FileName, SiteName

# Stands in front of the bytes of a file in the output of ``koala_read_whole``.
_HERE = b"here"
# The time limit of copies into the area at a site, whose sizes are not known before.
TAKE_IN_S = 6 * 3600.0
AREA_FUNCTIONS = PROCESS_FUNCTIONS + shell_functions(__package__, "area.sh")


class RemoteArea(FileArea):
    """An area below the directory ``root`` of a site: an absolute path there, or one that begins with '~/'."""

    def __init__(self, site: SiteName, host: Host, root: str, *, limits: CollectLimits | None = None) -> None:
        super().__init__(site, host, limits)
        self._given_up: set[asyncio.Task[None]] = set()
        self._enter = f"cd {quoted_path(root)}\n"
        self._make = f"mkdir -p {quoted_path(root)}\n"
        self._root: str | None = None
        self._removed = 0

    async def root(self) -> str:
        if self._root is None:
            self._root = (await self.host.run(f"{self._make}{self._enter}pwd -P\n")).rstrip("\n")
        return self._root

    async def prepare(self) -> dict[str, set[TransferId]]:
        await self.root()
        held: dict[str, set[TransferId]] = {}
        for line in (await self.call("koala_prepare")).splitlines():
            copy, _, holder = line.partition(" ")
            transfer = decode(holder)
            if transfer is not None:
                held.setdefault(copy, set()).add(transfer)
        return held

    # ---------------------------------------------------------------------------------------- replicas

    async def size_bytes(self, path: str) -> int | None:
        printed = await self.call("koala_size", path)
        return int(printed) if printed.strip() else None

    async def stamp(self, path: str) -> Stamp:
        return self._stamp(await self.call("koala_stamp", path), path)

    async def digest(self, path: str, size_bytes: int) -> str:
        return _digits(await self.run(f"koala_digest_of {shlex.quote(path)}\n", timeout_s=read_limit_s(size_bytes)))

    async def checksum(self, path: str, offset: int, size_bytes: int) -> str:
        """Return the SHA-256 of a piece of a file, computed at the site; the path is absolute or relative to the
        area."""
        read = shlex.join(["koala_read", path, str(offset), str(size_bytes)])
        return _digits(await self.run(f"{read} | koala_digest\n", timeout_s=read_limit_s(size_bytes)))

    async def _take_in(self, file: FileName, path: str) -> tuple[Stamp, str]:
        final = replica_path(file)
        printed = await self.call("koala_take_in", path, _fresh(file), final, timeout_s=TAKE_IN_S)
        why = {"absent": "No such file or directory", "closed": "Permission denied"}.get(printed.strip())
        if why is not None:
            raise PathError(f"path: {path!r} at {self.site}: {why}; name a file that your account there can read")
        if printed.strip() == "other":
            raise PathError(f"path: {path!r} at {self.site} is not a regular file; name a file")
        stamp, _, checksum = printed.strip().partition("\n")
        return self._stamp(stamp, final), _digits(checksum)

    async def _collect(
        self, file: FileName, token: Token, path: str, at_once_bytes: int | None
    ) -> tuple[Stamp, CollectedFile] | None:
        final, fresh, limits = replica_path(file), f"{REPLICAS}/{fresh_name(file)}", self._limits
        workspace = f"../{COMPONENTS}/{token}/{WORK}"
        sizes = (limits.bytes_max, limits.entries_max, limits.bytes_max if at_once_bytes is None else at_once_bytes)
        words = ("koala_collect", workspace, path, fresh, final, *map(str, sizes), str(limits.holes_bytes_max))
        try:
            # It ends at its own time limit if the order to stop cannot reach it.
            printed = (await self.call(*words, timeout_s=limits.time_s + SCRIPT_S)).strip()
        except asyncio.CancelledError:
            self._give_up(fresh)
            raise
        if printed == "absent":
            return None
        if printed == "later":
            raise LargeOutputError
        what, _, rest = printed.partition("\n")
        if what == "full":
            raise OSError(errno.ENOSPC, f"there is no room for it on the disk of {self.site}")
        if what not in ("file", "directory"):
            raise refusal(self.site, path, what, limits)
        said, _, rest = rest.partition("\n")
        checksum, _, changed_at = rest.partition("\n")
        stamp = self._stamp(said, final)
        made = CollectedFile(
            size_bytes=stamp.size_bytes,
            checksum=_digits(checksum),
            directory=what == "directory",
            changed_at=float(changed_at) if changed_at.isascii() and changed_at.isdecimal() else None,
        )
        return stamp, made

    def _give_up(self, fresh: str) -> None:
        """Remove the fresh file, whose absence ends the script that may still make a replica at the site."""
        task = asyncio.create_task(self._remove_fresh(fresh), name=f"give up {fresh} at {self.site}")
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)

    async def _remove_fresh(self, fresh: str) -> None:
        with contextlib.suppress(OSError):  # the file goes when its doubt is settled, or when the area is opened
            await self.run(f"rm -f {shlex.quote(fresh)}*\n")

    async def close(self) -> None:
        await super().close()
        for task in tuple(self._given_up):
            task.cancel()
        await asyncio.gather(*self._given_up, return_exceptions=True)

    async def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        read = shlex.join(["koala_read", path, str(offset), str(size_bytes)])
        # The output may be any bytes; they come as text that can be converted back.
        return (await self.run(f"{read}\n", timeout_s=read_limit_s(size_bytes))).encode(errors="surrogateescape")

    async def read_whole(self, files: Mapping[FileName, int]) -> dict[FileName, bytes]:
        words = ["koala_read_whole"]
        for file, size_bytes in files.items():
            words += [replica_path(file), str(size_bytes)]
        printed = await self.run(f"{shlex.join(words)}\n", timeout_s=read_limit_s(sum(files.values())))
        data = printed.encode(errors="surrogateescape")
        found, offset = {}, 0
        for file, size_bytes in files.items():
            said, _, _ = data[offset : offset + len(_HERE) + 1].partition(b"\n")
            offset += len(said) + 1
            if said == _HERE:
                found[file] = data[offset : offset + size_bytes]
                offset += size_bytes
        return {file: piece for file, piece in found.items() if len(piece) == files[file]}

    async def _promote(self, file: FileName, copy: str) -> tuple[Stamp, str] | None:
        final = replica_path(file)
        printed = await self.call("koala_promote", f"{COPIES}/{copy}", _fresh(file), final, timeout_s=TAKE_IN_S)
        stamp, _, checksum = printed.strip().partition("\n")
        return (self._stamp(stamp, final), checksum) if checksum else None

    async def _take_name(self, incoming: FileName, file: FileName) -> None:
        await self.call("mv", "-f", replica_path(incoming), replica_path(file))

    async def forget(self, file: FileName) -> None:
        await self.call("rm", "-f", replica_path(file))

    async def doubt(self, *files: FileName) -> None:
        # The mark contains the name itself, because a long name is cut in the name of the mark.
        names = ["".join(f"\\{byte:03o}" for byte in file.encode("utf-8", "surrogatepass")) for file in files]
        marks = zip(files, names, strict=True)
        await self.run("".join(_line("koala_doubt", _mark(file), name) for file, name in marks))

    async def settle(self, *files: FileName, keep: bool) -> None:
        # The mark is removed last, so that a kill in between leaves it to be settled again. A script that still makes
        # the replica, although nobody waits for it, fails without its fresh file.
        script = ""
        for file in files:
            replica = "" if keep else f"{shlex.quote(_fresh(file))}@* {shlex.quote(replica_path(file))} "
            script += f"rm -f {replica}{shlex.quote(_mark(file))}\n"
        await self.run(script)

    async def doubts(self) -> list[FileName]:
        printed = await self.call("koala_doubts", encode(INCOMING))
        return [bytes.fromhex(line).decode("utf-8", "surrogatepass") for line in printed.splitlines()]

    # ------------------------------------------------------------------------------------------ copies

    async def hold(self, copy: str, transfer: TransferId) -> None:
        await self.call("koala_hold", f"{COPIES}/{copy}", encode(transfer))

    async def let_go(self, copy: str, transfer: TransferId) -> None:
        await self.call("rm", "-f", f"{COPIES}/{copy}/{HOLDERS}/{encode(transfer)}")

    async def remove(self, copy: str) -> None:
        self._removed += 1
        await self.call("koala_remove", f"{COPIES}/{copy}", f"{TRASH}/{copy}.{self._removed}")

    # ------------------------------------------------------------------------------------------ scripts

    async def call(self, *words: str, timeout_s: float = SCRIPT_S) -> str:
        """Run one command, or a function of ``area.sh``, in the area's directory. See ``Host.run``."""
        return await self.run(f"{shlex.join(words)}\n", timeout_s=timeout_s)

    async def run(self, script: str, *, timeout_s: float = SCRIPT_S) -> str:
        """Run a script in the area's directory. See ``Host.run``."""
        return await self.host.run(f"{self._enter}{AREA_FUNCTIONS}{script}", timeout_s=timeout_s)

    def _stamp(self, printed: str, path: str) -> Stamp:
        """Return a stamp that a script printed. Raises ``OSError`` if there is no file or no regular one."""
        location = f"{self.site}:{path}"
        size, _, version = printed.strip().partition(" ")
        if not size:
            raise FileNotFoundError(location)
        if not size.isdigit():
            raise OSError("is not a regular file")
        return Stamp(location=location, size_bytes=int(size), version=version)


def _digits(printed: str) -> str:
    """Return a checksum that a script printed. Raises ``OSError`` for anything else."""
    if not is_checksum(printed.strip()):
        raise OSError(f"no SHA-256 was printed, but {printed.strip()[:80]!r}; install openssl, sha256sum or shasum")
    return printed.strip()


def _line(*words: str) -> str:
    return f"{shlex.join(words)}\n"


def _mark(file: FileName) -> str:
    return f"{DOUBTS}/{encode(file)}"


def _fresh(file: FileName) -> str:
    return f"{REPLICAS}/.{encode(file)}"
