"""A real PostgreSQL server for tests: in a directory of its own, reached by a unix socket only, with fsync on.

``postgres_server()`` gives one and stops it at the end; without PostgreSQL it skips the test, or fails it where the
environment variable CI is set. A server may be stopped, killed and started again; what it has acknowledged stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "koala"
# Where distributions put the programs of a server; the newest version is taken.
PROGRAMS = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"
WAIT_S = 120


class PostgresServer:
    """A server that runs from ``start`` to ``stop``."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root = root
        self._programs = programs
        self._names = itertools.count(1)
        # The server's programs refuse to run as root.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []

    def create(self) -> None:
        """An empty cluster of databases."""
        self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def start(self) -> None:
        """Returns when it takes connections."""
        options = f"-k {self.root} -c listen_addresses='' -c fsync=on -c max_connections=200"
        log = str(self.root / "log")
        self._run("pg_ctl", "start", "-w", "-t", str(WAIT_S), "-D", self._data, "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is as if the machine had lost its power."""
        self._run("pg_ctl", "stop", "-w", "-t", str(WAIT_S), "-m", mode, "-D", self._data)

    @property
    def running(self) -> bool:
        """Whether there is a server."""
        return self._call("pg_ctl", "status", "-D", self._data).returncode == 0

    def new_database(self) -> str:
        """The URL of an empty database that no other test uses."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        """How to connect to a database of this server."""
        return f"postgresql://{USER}@/{database}?host={self.root}"

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement, and give the first value of its answer."""
        import psycopg

        with psycopg.connect(host=str(self.root), user=USER, dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description is not None else None
        return "" if row is None else str(row[0])

    def kill_backends(self, database: str) -> None:
        """Kill -9 the server's processes for a database; the server then restarts all of them, as after a crash."""
        query = f"SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = '{database}'"  # noqa: S608
        for pid in self.execute(query).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    @property
    def _data(self) -> str:
        return str(self.root / "data")

    def _run(self, program: str, *arguments: str) -> None:
        done = self._call(program, *arguments)
        assert done.returncode == 0, f"{program} failed:\n{done.stdout}\n{self._log()}"

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # What it prints goes to a file: a server that was started would keep a pipe open.
        with tempfile.TemporaryFile("w+") as output:
            command = [*self._as_user, str(self._programs / program), *arguments]
            done = subprocess.run(
                command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=2 * WAIT_S
            )
            output.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, stdout=output.read())

    def _log(self) -> str:
        log = self.root / "log"
        return log.read_text(encoding="utf-8", errors="replace")[-4_000:] if log.exists() else ""


def _programs() -> Path | None:
    found = [
        path for pattern in PROGRAMS for path in Path("/").glob(pattern.lstrip("/")) if (path / "initdb").exists()
    ]
    if found:
        return max(found, key=lambda path: [int(part) for part in path.parent.name.split("-")[-1].split(".")])
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


def _missing() -> str:
    if _programs() is None:
        return "PostgreSQL is not installed here"
    if os.geteuid() == 0:
        if shutil.which("runuser") is None:
            return "runuser is missing, and PostgreSQL does not run as root"
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "there is no user postgres, and PostgreSQL does not run as root"
    return ""


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server."""
    missing = _missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing}; install it, CI tests everything")
    if missing:
        pytest.skip(missing)
    programs = _programs()
    assert programs is not None
    # The path of a unix socket must be short, so this is not below pytest's directory.
    root = Path(tempfile.mkdtemp(prefix="koala-pg-", dir="/tmp"))
    server = PostgresServer(root, programs)
    try:
        if os.geteuid() == 0:
            shutil.chown(root, "postgres")
        server.create()
        server.start()
        yield server
    finally:
        if server.running:
            server.stop("immediate")
        shutil.rmtree(root)
