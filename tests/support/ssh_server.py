"""A real sshd on loopback for tests: its own host key, its own port, one key that may log in, and nothing of the
user's own configuration. Without sshd the test is skipped, or fails where the environment variable CI is set."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.ports import free_port

HOST = "cluster"
WAIT_S = 120.0


class SshServer:
    """A server that runs from ``start`` to ``stop``; ``config`` is the configuration for ``ssh -F`` that reaches it
    by the names in ``hosts``."""

    def __init__(self, root: Path, program: str, hosts: Sequence[str]) -> None:
        self.root = root
        self.config = root / "ssh_config"
        self.hosts = tuple(hosts)
        self._program = program
        self._daemon: subprocess.Popen[bytes] | None = None
        root.mkdir()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)], check=True)
        (root / "authorized").write_text((root / "user.pub").read_text())
        self.port = free_port()
        (root / "known").write_text(f"[127.0.0.1]:{self.port} {(root / 'host.pub').read_text()}")
        (root / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/authorized\n"
            f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nMaxStartups 100\n"
            # The default key exchange, which is safe against future computers, takes five times the processor time.
            "KexAlgorithms curve25519-sha256\n"
            # The commands of this user's shell at login are no part of a test.
            f"SetEnv HOME={root}\n"
        )
        self.configure(f"IdentityFile {root}/user")

    def configure(self, *lines: str) -> None:
        """Write the client's configuration, with these lines for the host."""
        common = (
            f"HostName 127.0.0.1\nPort {self.port}\nUser {getpass.getuser()}\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {self.root}/known\nStrictHostKeyChecking yes\n"
        )
        names = " ".join(self.hosts)
        self.config.write_text(f"Host {names}\n{common}" + "".join(f"{line}\n" for line in lines))

    def knowing(self, said: Path) -> Path:
        """Return a directory for PATH with an ssh that knows the hosts too, and that writes its words into a file."""
        directory = self.root / "knowing"
        directory.mkdir(exist_ok=True)
        program = directory / "ssh"
        program.write_text(
            f'#!/bin/sh\nprintf \'%s\\n\' "$*" >>{said}\nexec {shutil.which("ssh")} -F {self.config} "$@"\n'
        )
        program.chmod(0o755)
        return directory

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        with (self.root / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [self._program, "-D", "-e", "-r", "-f", str(self.root / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        deadline = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline, (self.root / "log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """Accept no new connections, and cut the present ones."""
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return
        sessions = subprocess.run(["pgrep", "-P", str(daemon.pid)], capture_output=True, text=True, check=False)
        daemon.terminate()
        daemon.wait(WAIT_S)
        for pid in sessions.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 15)


@contextlib.contextmanager
def ssh_server(root: Path, hosts: Sequence[str] = (HOST,)) -> Iterator[SshServer]:
    """Run a server below ``root`` with these names during the block."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh") is None:
        complaint = "sshd is missing; install the packages openssh-server openssh-client"
        if os.environ.get("CI"):
            pytest.fail(complaint)
        pytest.skip(complaint)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights
    server = SshServer(root, program, hosts)
    server.start()
    try:
        yield server
    finally:
        server.stop()
