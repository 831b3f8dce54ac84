"""The methods that move bytes between sites: cut at one site, pulled, pushed, relayed, or sent by GridFTP.

A method determines which script runs where, and which file at the target grows meanwhile;
``koala.files.transfer.remote_piece`` runs it. All methods write each byte at its own offset, so that a writer that
nobody could stop changes nothing that another has written.
"""

from __future__ import annotations

import hashlib
import shlex
from abc import ABC, abstractmethod
from urllib.parse import unquote, urlsplit

import msgspec

from koala.files.area.layout import COPIES
from koala.files.area.remote import AREA_FUNCTIONS, RemoteArea
from koala.files.hosts import Host, quoted_path, read_limit_s, shell_functions
from koala.files.remote_process import RemoteProcess
from koala.files.transfer.order import Order

PART = "part"
PIECE_FUNCTIONS = shell_functions(__package__, "piece.sh")
_PACED_READ = " ".join(shell_functions(__package__, "paced_read.sh").split("\n")).strip()
# Streams are written in blocks of this size, and resume at the beginning of one.
BLOCK_BYTES = 1 << 20
# A transfer that moves nothing for this time counts as broken.
STALL_S = 60
# A rate-limited stream goes in pieces of this duration; POSIX has no shorter sleep.
PIECE_S = 1


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Source and target of a transfer: the two areas, the file's path in the source's, the copy's name in the
    target's."""

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
    """Return a command that writes its standard input into a file, from the beginning of a block on; see
    ``resumed``."""
    return f"dd ibs=65536 obs={BLOCK_BYTES} seek={done // BLOCK_BYTES} conv=notrunc of={shlex.quote(part)}"


def resumed(done: int) -> int:
    """Return the offset at which a stream resumes after this many bytes have arrived."""
    return done // BLOCK_BYTES * BLOCK_BYTES


def reader(path: str, offset: int, size_bytes: int) -> str:
    """Return a command that prints a piece of a file."""
    whole = f"cat {shlex.quote(path)}" if offset == 0 else f"tail -c +{offset + 1} {shlex.quote(path)}"
    return f"{whole} | head -c {size_bytes}"


def paced_reader(path: str, offset: int, size_bytes: int, rate_bytes_s: float) -> str:
    """Return the same command with a rate limit: in n seconds it prints at most n + 1 times the rate."""
    most = max(1, int(rate_bytes_s * PIECE_S))
    bounds = f"at={offset}; end={offset + size_bytes}; most={most}; pause_s={PIECE_S}"
    return f"file={shlex.quote(path)}; {bounds}; {_PACED_READ}"


def _stream(file: str, order: Order, done: int, rate_bytes_s: float | None) -> str:
    start = resumed(done)
    offset, size = order.offset + start, order.size_bytes - start
    return reader(file, offset, size) if rate_bytes_s is None else paced_reader(file, offset, size, rate_bytes_s)


class Method(ABC):
    """A way to move one piece between two sites: a process writes the part of the copy. It runs at the target unless
    ``at_target`` is False."""

    at_target = True

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    @abstractmethod
    async def script(self, done: int, rate_bytes_s: float | None) -> str:
        """Return the script that moves everything beyond the first ``done`` bytes. Raises ``OSError``."""

    async def process(self) -> RemoteProcess:
        """Return the process that moves the bytes, on its host and in its directory there."""
        return RemoteProcess(self._endpoints.target.host, await self._endpoints.home())

    async def watched(self) -> str:
        """Return the absolute path of the growing file at the target."""
        return await self._endpoints.part()

    def arrived(self, size_bytes: int) -> int:
        """Return how much of the piece has arrived when the watched file has this size."""
        return size_bytes

    async def collect(self) -> None:
        """Move what has arrived into the copy's part, unless it is there already."""
        return

    async def clean(self) -> None:
        """Remove what is needed only while bytes flow. May be repeated."""
        return


class CutMethod(Method):
    """Cuts a piece of a site's own replica, at the site."""

    async def script(self, done: int, rate_bytes_s: float | None) -> str:
        read = _stream(await self._endpoints.source_file(), self._endpoints.order, done, rate_bytes_s)
        return f"({read}) | {writer(PART, done)}\n"


class PullMethod(Method):
    """Runs at the target and reads from the source over ssh: ``ssh`` are the words of the command, the host last.
    Whole files come by rsync where both sides have it, pieces as a stream."""

    def __init__(self, endpoints: Endpoints, ssh: tuple[str, ...], *, rsync: bool) -> None:
        super().__init__(endpoints)
        self._ssh = ssh
        self._rsync = rsync

    async def script(self, done: int, rate_bytes_s: float | None) -> str:
        file, order = await self._endpoints.source_file(), self._endpoints.order
        if self._rsync and order.chunk is None:
            return rsync_script(self._ssh[:-1], f"{self._ssh[-1]}:{file}", PART, rate_bytes_s)
        there = shlex.join(["sh", "-c", _stream(file, order, done, rate_bytes_s)])
        return f"{shlex.join([*self._ssh, there])} | {writer(PART, done)}\n"


class RelayMethod(Method):
    """Runs on this machine, in the private directory ``home``: a stream from the source to the target.

    With ``rsync`` this machine has the file itself, and pushes it.
    """

    def __init__(self, endpoints: Endpoints, here: Host, home: str, *, rsync: bool) -> None:
        super().__init__(endpoints)
        self.at_target = False
        self._here = here
        self._home = home
        self._rsync = rsync

    async def process(self) -> RemoteProcess:
        await self._here.run(f"mkdir -p {quoted_path(self._home)}\n")
        return RemoteProcess(self._here, self._home)

    async def script(self, done: int, rate_bytes_s: float | None) -> str:
        endpoints, order = self._endpoints, self._endpoints.order
        file, part = await endpoints.source_file(), await endpoints.part()
        if self._rsync and order.chunk is None:
            return rsync_script(self._here.ssh, file, f"{endpoints.target.host.ssh_name}:{part}", rate_bytes_s)
        read = endpoints.source.host.shell_command(_stream(file, order, done, rate_bytes_s))
        return f"{read} | {endpoints.target.host.shell_command(writer(part, done))}\n"

    async def clean(self) -> None:
        await RemoteProcess(self._here, self._home).stop()
        await self._here.run(f"rm -rf {quoted_path(self._home)}\n")


class ServerDirectory:
    """The directory that a site's file server serves, as an absolute path at the site and as a URL.

    The server may run as another user there: a file that it is to read is linked into the directory, and a file that
    it has written is moved out of it.
    """

    def __init__(self, host: Host, url: str) -> None:
        self.host = host
        self.url = url.rstrip("/")
        self.path = unquote(urlsplit(url).path).rstrip("/")

    async def link(self, file: str, name: str) -> None:
        """Let the server read a file under a name."""
        await self.host.run(PIECE_FUNCTIONS + shlex.join(["koala_serve", file, f"{self.path}/{name}"]) + "\n")

    async def remove(self, *names: str) -> None:
        """Remove the files with these names."""
        await self.host.run(shlex.join(["rm", "-f", *(f"{self.path}/{name}" for name in names)]) + "\n")

    async def open(self) -> None:
        """Remove links that a killed daemon has left. A reader has its file open already."""
        await self.host.run(f"rm -f {shlex.quote(self.path)}/koala-*{SOURCE_SUFFIX}\n")


SOURCE_SUFFIX, TARGET_SUFFIX = ".from", ".to"


def served_name(target: str, copy: str) -> str:
    """Return the name of a copy for a site in the directories of both file servers."""
    return f"koala-{hashlib.sha256(f'{target}/{copy}'.encode()).hexdigest()[:32]}"


class GridFtpMethod(Method):
    """Orders the source's file server to send to the target's; the data goes directly from one to the other.

    The client runs at the target, or on this machine in the directory ``home``. The target's server writes a piece at
    its offset in the whole file, and the piece is cut out afterwards. Neither the client nor the servers have a speed
    limit, so an order's rate has no effect.
    """

    def __init__(
        self, endpoints: Endpoints, source: ServerDirectory, target: ServerDirectory, client: Host, home: str | None
    ) -> None:
        super().__init__(endpoints)
        self._source = source
        self._target = target
        self.at_target = home is None
        self._client = client
        self._home = home
        name = served_name(endpoints.target.site, endpoints.copy)
        self._from, self._to = name + SOURCE_SUFFIX, name + TARGET_SUFFIX

    async def watched(self) -> str:
        return f"{self._target.path}/{self._to}"

    async def process(self) -> RemoteProcess:
        if self._home is None:
            return await super().process()
        await self._client.run(f"mkdir -p {quoted_path(self._home)}\n")
        return RemoteProcess(self._client, self._home)

    async def script(self, done: int, rate_bytes_s: float | None) -> str:
        order = self._endpoints.order
        await self._source.link(await self._endpoints.source_file(), self._from)
        words = ["globus-url-copy", "-stall-timeout", f"{STALL_S}"]
        if done > 0 or order.chunk is not None:
            words += ["-off", f"{order.offset + done}", "-len", f"{order.size_bytes - done}"]
        return shlex.join([*words, f"{self._source.url}/{self._from}", f"{self._target.url}/{self._to}"]) + "\n"

    def arrived(self, size_bytes: int) -> int:
        return max(0, size_bytes - self._endpoints.order.offset)

    async def collect(self) -> None:
        order, part = self._endpoints.order, await self._endpoints.part()
        whole = "yes" if order.chunk is None else "no"
        words = ["koala_collect", await self.watched(), part, str(order.offset), str(order.size_bytes), whole]
        script = f"{AREA_FUNCTIONS}{PIECE_FUNCTIONS}{shlex.join(words)}\n"
        await self._target.host.run(script, timeout_s=read_limit_s(order.size_bytes))

    async def clean(self) -> None:
        await self._source.remove(self._from)
        if self._home is not None:
            await RemoteProcess(self._client, self._home).stop()
            await self._client.run(f"rm -rf {quoted_path(self._home)}\n")


def rsync_script(ssh: tuple[str, ...], source: str, target: str, rate_bytes_s: float | None) -> str:
    """Return an rsync of one whole file that resumes where the target's file ends; the content is verified later."""
    limit = [] if rate_bytes_s is None else [f"--bwlimit={max(1, int(rate_bytes_s / 1024))}"]
    words = ["rsync", "-s", "--append", f"--timeout={STALL_S}", *limit, "-e", shlex.join(ssh), "--", source, target]
    return shlex.join(words) + "\n"
