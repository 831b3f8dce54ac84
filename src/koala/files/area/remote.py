"""The file area of a site whose files this machine does not see: every step is one short text run at the site.

Its layout is that of ``koala.files.area.layout``. Nothing is installed there; SHA-256 comes from whichever of the
usual programs the site has. How bytes get there is in ``koala.files.transfer.remote_piece``.
"""

from __future__ import annotations

import shlex
from functools import partial

from koala.files.area.interface import Measured
from koala.files.area.layout import COPIES, DOUBTS, HOLDERS, INCOMING, REPLICAS, TRASH, decode, encode, replica_path
from koala.files.area.verified import Proofs, WholeFile
from koala.files.checksums import is_checksum
from koala.files.errors import PathError
from koala.files.hosts import ERRAND_S, Place, path_word, reading_s
from koala.files.sources import Stamp
from koala.files.transfer.remote_process import STOP
from koala.model.messages import TransferId
from koala.model.request import FileName, SiteName

# Copies into the area at a site may take so long: nobody knows how large they are before.
TAKE_IN_S = 6 * 3600.0
# How a text prints the SHA-256 of its standard input, in 64 digits. Where the processor helps with it, openssl is
# several times as fast as the others; an old one does not know the option.
DIGEST = """\
koala_digest() { if openssl dgst -sha256 -r </dev/null >/dev/null 2>&1; then openssl dgst -sha256 -r
  elif command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-64; }
"""
# How a text lets a file ($1) take its name ($2): its bytes are on disk before.
APPEAR = """\
koala_appear() { chmod 444 "$1"; sync "$1" >/dev/null 2>&1 || sync; mv -f "$1" "$2"; }
"""
_STAMP = """\
koala_stamp() { stat -L -c '%s %i.%y' "$1" 2>/dev/null || stat -L -f '%z %i.%m' "$1"; }
"""


class RemoteArea:
    """An area below the directory ``root`` of a site. Keeps the promises of
    ``koala.files.area.interface.FileArea``."""

    def __init__(self, site: SiteName, place: Place, root: str) -> None:
        self._site = site
        self._place = place
        self._root_word = path_word(root)
        self._root: str | None = None
        self._discarded = 0
        self._proofs = Proofs()

    @property
    def site(self) -> SiteName:
        return self._site

    @property
    def place(self) -> Place:
        return self._place

    async def root(self) -> str:
        if self._root is None:
            self._root = (await self._place.do(f"mkdir -p {self._root_word}; cd {self._root_word}; pwd -P")).rstrip(
                "\n"
            )
        return self._root

    async def prepare(self) -> dict[str, set[TransferId]]:
        await self.root()
        printed = await self.do(
            f"mkdir -p {REPLICAS} {COPIES} {TRASH} {DOUBTS}\n"
            f"rm -f {REPLICAS}/.[!.]*\n"
            f"for home in {COPIES}/*; do\n"
            '  [ -d "$home" ] || continue\n'
            f'  set -- "$home"/{HOLDERS}/*\n'
            # One that nobody holds loses its place, and with it whoever still brings it ends.
            f'  if ! [ -e "$1" ]; then mv "$home" "{TRASH}/${{home##*/}}.$$"; continue; fi\n'
            '  for holder; do echo "${home##*/} ${holder##*/}"; done\n'
            "done\n"
            f"rm -rf {TRASH}/*\n"
        )
        held: dict[str, set[TransferId]] = {}
        for line in printed.splitlines():
            copy, _, holder = line.partition(" ")
            transfer = decode(holder)
            if transfer is not None:
                held.setdefault(copy, set()).add(transfer)
        return held

    # ---------------------------------------------------------------------------------------- replicas

    async def size_bytes(self, path: str) -> int | None:
        printed = await self.do(f"[ -f {_quoted(path)} ] || exit 0\nwc -c <{_quoted(path)}\n")
        return int(printed) if printed.strip() else None

    async def stamp(self, path: str) -> Stamp:
        """What a file of the area is now. Raises ``FileNotFoundError`` where there is none."""
        printed = await self.do(
            f"{_STAMP}if [ -f {_quoted(path)} ]; then koala_stamp {_quoted(path)}; "
            f"elif [ -e {_quoted(path)} ]; then echo other; fi\n"
        )
        return stamp_of(printed, f"{self.site}:{path}")

    async def measure(self, file: FileName) -> Measured:
        path = replica_path(file)
        size = int(await self.do(f"wc -c <{_quoted(path)}\n"))
        return Measured(size_bytes=size, checksum=await self._digest(path, size))

    async def proven(self, file: FileName, size_bytes: int | None = None) -> str:
        path = replica_path(file)
        whole = WholeFile(file, self.site, path, partial(self.stamp, path), partial(self._digest, path))
        return await self._proofs.checksum(whole, size_bytes)

    async def _digest(self, path: str, size_bytes: int) -> str:
        """SHA-256 of a whole file of this size."""
        return digits(await self.do(f"{DIGEST}koala_digest <{_quoted(path)}\n", timeout_s=reading_s(size_bytes)))

    async def checksum(self, path: str, offset: int, size_bytes: int) -> str:
        """SHA-256 of a piece of a file, computed at the site; the path is absolute or relative to the area."""
        text = f"{DIGEST}{reader(path, offset, size_bytes)} | koala_digest\n"
        return digits(await self.do(text, timeout_s=reading_s(size_bytes)))

    async def take_in(self, file: FileName, path: str) -> Measured:
        fresh, final = _fresh(file), replica_path(file)
        printed = await self.do(
            f"path={_quoted(path)}\n"
            'if ! [ -e "$path" ]; then echo absent; exit 0; fi\nif ! [ -f "$path" ]; then echo other; exit 0; fi\n'
            'if ! [ -r "$path" ]; then echo closed; exit 0; fi\n'
            f"{DIGEST}{APPEAR}{_STAMP}trap 'rm -f {fresh}' EXIT\n"
            f'cat "$path" >{fresh}\nkoala_stamp {fresh}\nkoala_digest <{fresh}\n'
            f"koala_appear {fresh} {_quoted(final)}\n",
            timeout_s=TAKE_IN_S,
        )
        why = {"absent": "No such file or directory", "closed": "Permission denied"}.get(printed.strip())
        if why is not None:
            raise PathError(f"path: {path!r} at {self.site}: {why}; name a file that your account there can read")
        if printed.strip() == "other":
            raise PathError(f"path: {path!r} at {self.site} is not a regular file; name a file")
        told, _, checksum = printed.strip().partition("\n")
        stamp = stamp_of(told, f"{self.site}:{final}")
        self._proofs.note(final, stamp, digits(checksum))
        return Measured(size_bytes=stamp.size_bytes, checksum=digits(checksum))

    async def promote(self, file: FileName, copy: str) -> None:
        fresh, final, home = _fresh(file), replica_path(file), f"{COPIES}/{copy}"
        printed = await self.do(
            f"{APPEAR}{_STAMP}rm -f {fresh}\n"
            f"if ln {home}/data {fresh} 2>/dev/null; then linked=yes; else linked=; cp {home}/data {fresh}; fi\n"
            f"koala_appear {fresh} {_quoted(final)}\n"
            # Only what is the file of the copy itself was verified when it came.
            f'if [ -n "$linked" ] && [ -s {home}/checksum ]; then\n'
            f"  koala_stamp {_quoted(final)}\n  cat {home}/checksum\nfi\n",
            timeout_s=TAKE_IN_S,
        )
        told, _, checksum = printed.strip().partition("\n")
        if is_checksum(checksum):
            self._proofs.note(final, stamp_of(told, f"{self.site}:{final}"), checksum)

    async def take_name(self, incoming: FileName, file: FileName) -> None:
        await self.do(f"mv -f {_quoted(replica_path(incoming))} {_quoted(replica_path(file))}\n")
        self._proofs.rename(replica_path(incoming), replica_path(file))

    async def forget(self, file: FileName) -> None:
        await self.do(f"rm -f {_quoted(replica_path(file))}\n")

    async def doubt(self, file: FileName) -> None:
        mark = _quoted(f"{DOUBTS}/{encode(file)}")
        # The name itself, as a long one is cut in the name of the mark; byte by byte, since it may be any text.
        name = "".join(f"\\{byte:03o}" for byte in file.encode("utf-8", "surrogatepass"))
        await self.do(f"mkdir -p {DOUBTS}\nprintf '{name}' >{mark}.fresh\nmv -f {mark}.fresh {mark}\n")

    async def settle(self, file: FileName, *, keep: bool) -> None:
        gone = "" if keep else f"rm -f {_quoted(replica_path(file))}\n"
        await self.do(f"{gone}rm -f {_quoted(f'{DOUBTS}/{encode(file)}')}\n")

    async def doubts(self) -> list[FileName]:
        printed = await self.do(
            f"rm -f {REPLICAS}/{_quoted(encode(INCOMING))}* {DOUBTS}/*.fresh\n"
            f"for mark in {DOUBTS}/*; do\n"
            '  [ -f "$mark" ] || continue\n'
            "  od -An -v -tx1 \"$mark\" | tr -d ' \\n'; echo\n"
            "done\n"
        )
        return [bytes.fromhex(line).decode("utf-8", "surrogatepass") for line in printed.splitlines()]

    # ------------------------------------------------------------------------------------------ copies

    async def hold(self, copy: str, transfer: TransferId) -> None:
        holders = f"{COPIES}/{copy}/{HOLDERS}"
        await self.do(f"mkdir -p {holders}\n: >{holders}/{_quoted(encode(transfer))}\n")

    async def let_go(self, copy: str, transfer: TransferId) -> None:
        await self.do(f"rm -f {COPIES}/{copy}/{HOLDERS}/{_quoted(encode(transfer))}\n")

    async def remove(self, copy: str) -> None:
        home = f"{COPIES}/{copy}"
        self._discarded += 1
        await self.do(
            f"[ -e {home} ] || exit 0\n{STOP}( cd {home}; koala_stop )\n"
            f"trash={TRASH}/{copy}.$$.{self._discarded}\n"
            f'mv {home} "$trash"\nrm -rf "$trash"\n'
        )

    async def close(self) -> None:
        await self._proofs.close()

    async def do(self, text: str, *, timeout_s: float | None = None) -> str:
        """Run a text in the area's directory. See ``Place.do``."""
        limit_s = ERRAND_S if timeout_s is None else timeout_s
        return await self._place.do(f"cd {self._root_word}\n{text}", timeout_s=limit_s)


def reader(path: str, offset: int, size_bytes: int) -> str:
    """A command that prints a piece of a file."""
    whole = f"cat {_quoted(path)}" if offset == 0 else f"tail -c +{offset + 1} {_quoted(path)}"
    return f"{whole} | head -c {size_bytes}"


def digits(printed: str) -> str:
    """A checksum that a text printed. Raises ``OSError`` for anything else."""
    if not is_checksum(printed.strip()):
        raise OSError(f"no SHA-256 was printed, but {printed.strip()[:80]!r}; install openssl, sha256sum or shasum")
    return printed.strip()


def stamp_of(printed: str, location: str) -> Stamp:
    """A stamp that a text printed. Raises ``OSError`` where there is no file or no regular one."""
    size, _, version = printed.strip().partition(" ")
    if not size:
        raise FileNotFoundError(location)
    if not size.isdigit():
        raise OSError("is not a regular file")
    return Stamp(location=location, size_bytes=int(size), version=version)


def _fresh(file: FileName) -> str:
    return _quoted(f"{REPLICAS}/.{encode(file)}")


def _quoted(path: str) -> str:
    return shlex.quote(path)
