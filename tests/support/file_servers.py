"""Real servers that move files on loopback: an sshd with keys of its own, GridFTP servers, and sites that use them.

Each server dies with the test. Where a program is missing the test is skipped, or fails where the environment
variable CI is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.files import AreaDirectory, FileMover, Host, LocalArea, Order, RemoteArea
from koala.files.area.interface import FileArea
from koala.files.checksums import of_path
from koala.model.grid import BatchSettings, Site, SiteKind
from koala.sites.remote_shell import SSH_VARIABLES, RemoteShell
from tests.support.pauses import pause_s
from tests.support.ports import free_port

WAIT_S = 120.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def needed(program: str, package: str) -> str:
    """Return the path of a program; without it the test is skipped, or fails where the environment variable CI is
    set."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if found is None:
        words = f"{program} is missing; install it with: apt install {package}"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found


def until(condition: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
    """Wait for a true value, and return it."""
    began = time.monotonic()
    while not (found := condition()):
        time.sleep(_pause_s(began, wait_s))
    return found


async def until_async(condition: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
    """Do the same beside an event loop."""
    began = time.monotonic()
    while not (found := condition()):
        await asyncio.sleep(_pause_s(began, wait_s))
    return found


def _pause_s(began: float, wait_s: float) -> float:
    waited_s = time.monotonic() - began
    assert waited_s < wait_s, "it never came true"
    return pause_s(waited_s, 0.02)


def answers(port: int) -> bool:
    """Return True if a server listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class SshServer:
    """An sshd for this user, and an ssh configuration ``config`` in which the hosts west and east are this machine.

    ``reaching`` is a directory for PATH with an ssh that knows them too; without it a site's account knows no host.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.config = root / "config"
        self.reaching = root / "bin"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it; return when it accepts connections."""
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / name)]
            subprocess.run(key, check=True, stdin=subprocess.DEVNULL)
        server = self.root / "sshd_config"
        server.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.root}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.root}/user.pub\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n"
            # The default key exchange, which is safe against future computers, takes five times the processor time.
            "KexAlgorithms curve25519-sha256\n"
            # The commands of this user's shell at login are no part of the test.
            f"SetEnv HOME={self.root}\n"
        )
        (self.root / "known").write_text(f"[127.0.0.1]:{self.port} {(self.root / 'host.pub').read_text()}")
        self.config.write_text(
            f"Host west east\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.root}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.root}/known\n"
        )
        self.reaching.mkdir()
        reaching = self.reaching / "ssh"
        reaching.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        reaching.chmod(0o755)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.root / "log").open("wb") as log:
            process = subprocess.Popen(
                [needed("sshd", "openssh-server"), "-D", "-e", "-r", "-f", str(server)], stdout=log, stderr=log
            )
        until(lambda: answers(self.port))
        return process


@contextlib.contextmanager
def ssh_server() -> Iterator[SshServer]:
    """Run a server until the end of the block."""
    for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client"), ("rsync", "rsync")):
        needed(program, package)
    with tempfile.TemporaryDirectory(prefix="koala-sshd-") as name:
        server = SshServer(Path(name))
        process = server.start()
        try:
            yield server
        finally:
            process.terminate()
            process.wait(WAIT_S)
            # Shared connections that a killed process has left behind.
            for each in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if each.name.isdigit() and str(server.config) in (each / "cmdline").read_text(errors="replace"):
                        os.kill(int(each.name), signal.SIGTERM)


class GridFtpServer:
    """A GridFTP server for anybody on loopback; as root it runs as nobody. It serves the directory ``served``."""

    def __init__(self, served: Path) -> None:
        self.port = free_port()
        self.url = f"ftp://127.0.0.1:{self.port}{served}"
        self._process: subprocess.Popen[bytes] | None = None
        served.mkdir(parents=True)
        served.chmod(0o777)

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        words = ["globus-gridftp-server", "-no-detach", "-p", str(self.port), "-aa"]
        words += ["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
        if os.geteuid() == 0:
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
        environment = {"PATH": SYSTEM_PATH, "HOME": "/"}
        self._process = subprocess.Popen(
            words, cwd="/", env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        until(lambda: answers(self.port))

    def stop(self) -> None:
        """Stop it at once, with all connections."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None


class FileGrid:
    """Sites with file areas below one directory; this machine reaches some of them only by ssh."""

    def __init__(self, root: Path, server: SshServer | None = None) -> None:
        self.root = root
        self._server = server
        self.ssh = ("ssh",) if server is None else ("ssh", "-F", str(server.config), "-o", "BatchMode=yes")
        agents = {name: os.environ[name] for name in SSH_VARIABLES if name in os.environ}
        self.here = Host(RemoteShell(environment=agents), ssh=self.ssh)
        self.sites: dict[str, Site] = {}
        self.areas: dict[str, FileArea] = {}

    def local(self, name: str, file_server: str | None = None) -> None:
        """Add a site of this machine."""
        self.sites[name] = Site(name=name, processors=1, kind=SiteKind.LOCAL, file_server=file_server)
        self.areas[name] = LocalArea(AreaDirectory(name, self.files(name)), self.here)

    def remote(self, name: str, path: str = SYSTEM_PATH, file_server: str | None = None, **more: Any) -> None:
        """Add a site under a batch system whose files this machine does not see."""
        settings = BatchSettings(work_directory=str(self.root / name), environment=(("PATH", path),), **more)
        assert self._server is not None or settings.ssh is None
        config = None if self._server is None else self._server.config
        commands = RemoteShell(
            ssh=settings.ssh, through=settings.through, environment=dict(settings.environment), ssh_config=config
        )
        self.sites[name] = Site(name=name, processors=1, kind="slurm", batch=settings, file_server=file_server)
        place = Host(commands, settings, ssh=self.ssh)
        self.areas[name] = RemoteArea(name, place, f"{settings.work_directory}/files")

    def files(self, name: str) -> Path:
        """Return the directory of a site's area."""
        return self.root / name / "files"

    def put(self, file: str, data: bytes, site: str) -> Path:
        """Make a replica."""
        area = AreaDirectory(site, self.files(site))
        area.open()
        outside = self.root / "outside"
        outside.write_bytes(data)
        return area.adopt(file, outside)

    def order(self, file: str, source: str, target: str, transfer: str = "t1", **more: Any) -> Order:
        """Return an order for an existing replica."""
        path = AreaDirectory(source, self.files(source)).replica(file)
        chunk = more.get("chunk")
        size = path.stat().st_size if chunk is None else chunk[1]
        settings: dict[str, Any] = {"size_bytes": size, "checksum": of_path(path)} | more
        return Order(transfer=transfer, file=file, source=source, target=target, **settings)

    def left(self, site: str) -> list[str]:
        """Return what is at a site beside replicas, and in its file server's directory."""
        found = [path for name in ("copies", "trash") for path in (self.files(site) / name).rglob("*")]
        found += (self.root / site / "served").glob("*")
        return [str(path) for path in found]

    def processes(self, *below: str) -> list[int]:
        """Return the living processes that transfer something at any of these sites, found by their directories."""
        return processes_in(self.root.joinpath(*below))

    @contextlib.asynccontextmanager
    async def mover(self, *names: str, **settings: Any) -> AsyncIterator[FileMover]:
        """Open a mover between these sites, or all."""
        chosen = {name: site for name, site in self.sites.items() if name in (names or self.sites)}
        areas = {name: self.areas[name] for name in chosen}
        settings = {"clock": time.monotonic} | settings
        mover = FileMover(chosen.values(), areas, self.here, self.root / "relays", **settings)
        await mover.open()
        try:
            yield mover
        finally:
            await mover.close()


def processes_in(root: Path) -> list[int]:
    """Return the living processes whose working directory is below a directory, or was before its removal."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                if str((each / "cwd").readlink()).startswith(f"{root}/"):
                    found.append(int(each.name))
    return found
