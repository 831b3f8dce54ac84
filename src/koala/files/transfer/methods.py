"""The texts that move bytes between sites, one class for each way: cut, pulled, pushed, relayed, or by GridFTP.

A lane says what is to be run where, and where what arrives can be seen growing;
``koala.files.transfer.remote_piece`` runs it.
All of them write each byte at its own place, so that a writer that nobody could stop changes nothing that another
one wrote.
"""

from __future__ import annotations

import hashlib
import shlex
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from koala.files.area.layout import COPIES
from koala.files.area.remote import RemoteArea, reader
from koala.files.hosts import Place, path_word, reading_s
from koala.files.transfer.interface import Order
from koala.files.transfer.remote_process import Carriage

PART = "part"
# Streams are written in blocks, and go on at the beginning of one.
BLOCK_BYTES = 1 << 20
# A transfer on which nothing moves for so long counts as cut.
STALL_S = 60
# A stream with a limit of speed goes in pieces that take so long each; POSIX knows no shorter sleep.
PIECE_S = 1


class Lane(Protocol):
    """One way to bring one piece."""

    @property
    def at_target(self) -> bool:
        """Whether its process runs at the target."""
        ...

    async def watched(self) -> str:
        """The file at the target that grows, by its absolute path there."""
        ...

    async def carriage(self) -> Carriage:
        """Where the process runs, with its directory there."""
        ...

    async def text(self, done: int, rate_bytes_s: float | None) -> str:
        """What it runs to bring all beyond the first ``done`` bytes. Raises ``OSError``."""
        ...

    def arrived(self, size_bytes: int) -> int:
        """How much of the piece has arrived when the watched file has this size."""
        ...

    async def collect(self) -> None:
        """Put what has arrived into the copy's part, if it is not there already."""
        ...

    async def clean(self) -> None:
        """Remove what is needed only while bytes flow. May be repeated."""
        ...


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """From where to where: the two areas, the file's path in the source's, the copy's name in the target's."""

    order: Order
    source: RemoteArea
    path: str
    target: RemoteArea
    copy: str

    async def source_file(self) -> str:
        return f"{await self.source.root()}/{self.path}"

    async def home(self) -> str:
        return f"{await self.target.root()}/{COPIES}/{self.copy}"

    async def part(self) -> str:
        return f"{await self.home()}/{PART}"


def writer(part: str, done: int) -> str:
    """A command that writes its standard input into a file, from the beginning of a block on; see ``resumed``."""
    return f"dd ibs=65536 obs={BLOCK_BYTES} seek={done // BLOCK_BYTES} conv=notrunc of={shlex.quote(part)}"


def resumed(done: int) -> int:
    """Where a stream goes on of which so much has arrived."""
    return done // BLOCK_BYTES * BLOCK_BYTES


def paced_reader(path: str, offset: int, size_bytes: int, rate_bytes_s: float) -> str:
    """A command that prints a piece of a file no faster than that: in n seconds never more than n + 1 times the rate.

    The time runs beside the bytes, so that a link that is just as fast as the limit is used in full. It ends when
    nobody reads any more.
    """
    file, most = shlex.quote(path), max(1, int(rate_bytes_s * PIECE_S))
    return (
        f"at={offset}; end={offset + size_bytes}; while [ $at -lt $end ]; do "
        f"sleep {PIECE_S} </dev/null >/dev/null 2>&1 & "
        f"size=$((end - at)); [ $size -le {most} ] || size={most}; "
        f"[ -r {file} ] && tail -c +$((at + 1)) {file} | head -c $size || exit; "
        "at=$((at + size)); [ $at -ge $end ] || wait; done"
    )


def _stream(file: str, order: Order, done: int, rate_bytes_s: float | None) -> str:
    start = resumed(done)
    offset, size = order.offset + start, order.size_bytes - start
    return reader(file, offset, size) if rate_bytes_s is None else paced_reader(file, offset, size, rate_bytes_s)


class _AtTarget:
    """What lanes have in common whose process writes the part of the copy, and runs at the target."""

    at_target = True

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    async def watched(self) -> str:
        return await self._ends.part()

    async def carriage(self) -> Carriage:
        return Carriage(self._ends.target.place, await self._ends.home())

    def arrived(self, size_bytes: int) -> int:
        return size_bytes

    async def collect(self) -> None:
        """It is there."""

    async def clean(self) -> None:
        """There is nothing beside it."""


class WithinLane(_AtTarget):
    """Cuts a piece of a site's own replica, at the site."""

    async def text(self, done: int, rate_bytes_s: float | None) -> str:
        read = _stream(await self._ends.source_file(), self._ends.order, done, rate_bytes_s)
        return f"({read}) | {writer(PART, done)}\n"


class PullLane(_AtTarget):
    """Runs at the target and reads from the source over ssh: ``ssh`` are the words that lead there, the last of them
    the host. Whole files come by rsync where both sides have it, pieces in a stream."""

    def __init__(self, ends: Ends, ssh: tuple[str, ...], *, rsync: bool) -> None:
        super().__init__(ends)
        self._ssh = ssh
        self._rsync = rsync

    async def text(self, done: int, rate_bytes_s: float | None) -> str:
        file, order = await self._ends.source_file(), self._ends.order
        if self._rsync and order.chunk is None:
            return rsync_text(self._ssh[:-1], f"{self._ssh[-1]}:{file}", PART, rate_bytes_s)
        there = shlex.join(["sh", "-c", _stream(file, order, done, rate_bytes_s)])
        return f"{shlex.join([*self._ssh, there])} | {writer(PART, done)}\n"


class RelayLane(_AtTarget):
    """Runs on this machine, in the directory ``home`` that nobody else uses: a stream from the source to the target.

    With ``rsync`` this machine has the file itself, and pushes it.
    """

    def __init__(self, ends: Ends, here: Place, home: str, *, rsync: bool) -> None:
        super().__init__(ends)
        self.at_target = False
        self._here = here
        self._home = home
        self._rsync = rsync

    async def carriage(self) -> Carriage:
        await self._here.do(f"mkdir -p {path_word(self._home)}\n")
        return Carriage(self._here, self._home)

    async def text(self, done: int, rate_bytes_s: float | None) -> str:
        ends, order = self._ends, self._ends.order
        file, part = await ends.source_file(), await ends.part()
        if self._rsync and order.chunk is None:
            return rsync_text(self._here.ssh, file, f"{ends.target.place.host}:{part}", rate_bytes_s)
        read = ends.source.place.entered(_stream(file, order, done, rate_bytes_s))
        return f"{read} | {ends.target.place.entered(writer(part, done))}\n"

    async def clean(self) -> None:
        carriage = Carriage(self._here, self._home)
        await carriage.stop()
        await self._here.do(f"rm -rf {path_word(self._home)}\n")


class Dock:
    """The directory that a site's file server serves, as an absolute path at the site and as a URL.

    The server may be another user there than we are: what it reads is linked into the directory, what it has written
    is taken out of it.
    """

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self.url = url.rstrip("/")
        self.path = unquote(urlsplit(url).path).rstrip("/")

    async def link(self, file: str, name: str) -> None:
        """Let the server read a file under a name."""
        there = shlex.quote(f"{self.path}/{name}")
        await self.place.do(
            f"rm -f {there}\nln {shlex.quote(file)} {there} 2>/dev/null || ln -s {shlex.quote(file)} {there}\n"
        )

    async def remove(self, *names: str) -> None:
        """Remove what is there under these names."""
        await self.place.do("rm -f " + " ".join(shlex.quote(f"{self.path}/{name}") for name in names) + "\n")

    async def open(self) -> None:
        """Remove links that a daemon that was killed has left. Who reads through one has it open."""
        await self.place.do(f"rm -f {shlex.quote(self.path)}/koala-*{SOURCE_SUFFIX}\n")


SOURCE_SUFFIX, TARGET_SUFFIX = ".from", ".to"


def dock_name(target: str, copy: str) -> str:
    """What a copy for a site is called in the docks of both sides."""
    return f"koala-{hashlib.sha256(f'{target}/{copy}'.encode()).hexdigest()[:32]}"


class GridFtpLane(_AtTarget):
    """Tells the source's file server to send to the target's; the data goes straight from one to the other.

    The client runs at the target, or on this machine (``here``). A piece is written by the target's server at the
    offset that it has in the whole file, and cut out afterwards. Neither the client nor the servers know a limit of
    speed, so that an order's rate is not kept.
    """

    def __init__(self, ends: Ends, source: Dock, target: Dock, client: Place, home: str | None) -> None:
        super().__init__(ends)
        self._source = source
        self._target = target
        self.at_target = home is None
        self._client = client
        self._home = home
        name = dock_name(ends.target.site, ends.copy)
        self._from, self._to = name + SOURCE_SUFFIX, name + TARGET_SUFFIX

    async def watched(self) -> str:
        return f"{self._target.path}/{self._to}"

    async def carriage(self) -> Carriage:
        if self._home is None:
            return await super().carriage()
        await self._client.do(f"mkdir -p {path_word(self._home)}\n")
        return Carriage(self._client, self._home)

    async def text(self, done: int, rate_bytes_s: float | None) -> str:
        order = self._ends.order
        await self._source.link(await self._ends.source_file(), self._from)
        words = ["globus-url-copy", "-stall-timeout", f"{STALL_S}"]
        if done > 0 or order.chunk is not None:
            words += ["-off", f"{order.offset + done}", "-len", f"{order.size_bytes - done}"]
        return shlex.join([*words, f"{self._source.url}/{self._from}", f"{self._target.url}/{self._to}"]) + "\n"

    def arrived(self, size_bytes: int) -> int:
        return max(0, size_bytes - self._ends.order.offset)

    async def collect(self) -> None:
        order, file = self._ends.order, await self.watched()
        there, part = shlex.quote(file), shlex.quote(await self._ends.part())
        whole = f"if [ -O {there} ]; then mv -f {there} {part}; exit 0; fi\n" if order.chunk is None else ""
        await self._target.place.do(
            f"[ -e {there} ] || exit 0\n{whole}"
            f"{reader(file, order.offset, order.size_bytes)} >{part}\nrm -f {there}\n",
            timeout_s=reading_s(order.size_bytes),
        )

    async def clean(self) -> None:
        await self._source.remove(self._from)
        if self._home is not None:
            await Carriage(self._client, self._home).stop()
            await self._client.do(f"rm -rf {path_word(self._home)}\n")


def rsync_text(ssh: tuple[str, ...], source: str, target: str, rate_bytes_s: float | None) -> str:
    """rsync of one whole file, that goes on where the target's file ends. Whether that is right is verified later."""
    limit = [] if rate_bytes_s is None else [f"--bwlimit={max(1, int(rate_bytes_s / 1024))}"]
    words = ["rsync", "-s", "--append", f"--timeout={STALL_S}", *limit, "-e", shlex.join(ssh), "--", source, target]
    return shlex.join(words) + "\n"
