"""Components of several nodes without a batch system: their directory, a file ``site``, and the driver's part.

All nodes are this machine. A process on another node than the script's own has that node's name in TEST_NODE and a
session of its own, so that signals to the script's processes do not reach it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koala.model.launch import NodeShare, Peer
from koala.model.request import Application, JobType
from koala.runners import PROXIES, PROXY, component_script, go_for, proxy_mail
from tests.support.live_sites import launch
from tests.support.watched_sites import WAIT_S

_ON_NODE = """
koala_on_node() {
    test_node=$1
    shift
    exec setsid env "TEST_NODE=$test_node" "$@"
}
TEST_SITE=sourced
export TEST_SITE
"""


def site_text(*nodes: tuple[str, int]) -> str:
    """Return a file ``site`` for these nodes."""
    lines = " ".join(f"'{name} {processors}'" for name, processors in nodes)
    return f"koala_nodes() {{ printf '%s\\n' {lines}; }}\n{_ON_NODE}"


class Noded:
    """One component in a directory of its own, run by a shell."""

    def __init__(self, home: Path, part: int, parts: int, application: Application, **fields: Any) -> None:
        self.home = home
        self.part = part
        self._parts = parts
        self._application = application
        self._fields = fields
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *nodes: tuple[str, int], site: str | None = None, shell: str = "/bin/sh") -> None:
        """Begin its script, with a ``site`` that lists these nodes or is that text; ``shell`` is used for sh."""
        one = launch(
            f"1.{self.part}",
            self._application,
            processors=sum(processors for _, processors in nodes) or 1,
            part=self.part,
            parts=self._parts,
            **self._fields,
        )
        self.home.mkdir(parents=True)
        script = component_script(one).replace("/bin/sh", shell)
        (self.home / "script").write_text(script, encoding="utf-8")
        if site is not None or nodes:
            (self.home / "site").write_text(site if site is not None else site_text(*nodes), encoding="utf-8")
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [shell, "script"],
                cwd=self.home,
                env={"PATH": os.environ["PATH"], "KOALA_HOME": str(self.home.resolve())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def appears(self, name: str) -> Path:
        """Wait until a file of its directory exists."""
        self.until((self.home / name).exists, name)
        return self.home / name

    def until(self, holds: Callable[[], bool], what: str = "it") -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.text('log')} {self.text('stderr')}"
            time.sleep(0.02)

    def put(self, name: str, data: bytes) -> None:
        """Let a file appear as a whole."""
        (self.home / ".test").write_bytes(data)
        (self.home / ".test").rename(self.home / name)

    def peer(self) -> Peer:
        """Return the component as the others see it, once it is ready."""
        self.appears("ready")
        rows = [line.split() for line in self.text("nodes").splitlines()]
        others = [NodeShare(name, int(processors)) for name, processors in rows[1:]]
        nodes = (NodeShare("127.0.0.1", int(rows[0][1])), *others)
        processors = sum(node.processors for node in nodes)
        return Peer(part=self.part, host="127.0.0.1", processors=processors, nodes=nodes)

    def terminate(self) -> None:
        """Send SIGTERM to every process of the script's own session."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGTERM)

    def ended(self) -> str:
        """Wait for its end; return what its script recorded."""
        assert self._process is not None
        self._process.wait(WAIT_S)
        return self.text("exit").strip()

    def stop(self) -> None:
        """End whatever a failed test has left."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(WAIT_S)

    def text(self, name: str) -> str:
        """Return the content of a file of its directory; empty if there is none."""
        path = self.home / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def release(job_type: JobType, components: list[Noded], port: int | None = None) -> None:
    """Open the barrier for all; for an MPI job also carry the mail."""
    goes = go_for(job_type, 1, [each.peer() for each in components], port)
    for each, go in zip(components, goes, strict=True):
        each.put("go", go.text.encode())
    if job_type is JobType.MPI:
        proxies = components[0].appears(f"outbox/{PROXIES}").read_bytes()
        for each, letter in zip(components, proxy_mail(proxies, len(components)), strict=True):
            each.put(f"inbox/{PROXY}", letter)
