"""A real PostgreSQL server for tests: in a directory of its own, reached by a unix socket only, with fsync on.

``shared_server()`` returns the server of a test process, which is stopped with the fixtures of its session; without
PostgreSQL it skips the test, or fails it where the environment variable CI is set. A server may be stopped, killed
and started again; acknowledged data stays. The processes of a run make the first files of a server once, and copy
them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "koala"
# The places of a server's programs in distributions; the newest version is taken.
PROGRAMS = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"
WAIT_S = 120
# There are many databases that last a few seconds each, so nothing should scan all of them repeatedly.
SETTINGS = "-c autovacuum=off"


ROOM, MEMORY = Path("/tmp"), Path("/dev/shm")  # noqa: S108 - directories are made there by mkdtemp
MEMORY_FREE_BYTES = 8 * 1024**3

_RUNNING = pytest.StashKey["PostgresServer"]()


class PostgresServer:
    """A server that runs from ``start`` to ``stop``."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root = root
        self._programs = programs
        self._names = itertools.count(1)
        self._opened = ""
        # The server's programs refuse to run as root.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []

    def create(self, kept: Path | None) -> None:
        """Make an empty cluster of databases. The first is kept in a directory, if one is given; others are
        copies."""
        if kept is None:
            self._initialize()
            return
        with (kept / "postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            template = kept / "postgres"
            if template.exists():
                _copy(template, self._data)
            else:
                self._initialize()
                new = kept / "postgres.new"
                if new.exists():  # of a process that was killed as it copied
                    shutil.rmtree(new)
                _copy(self._data, new)
                new.rename(template)

    def _initialize(self) -> None:
        words = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
        self._run("initdb", "-D", self._data, *words)

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        options = f"-k {self.root} -c listen_addresses='' -c fsync=on -c max_connections=200 {SETTINGS}"
        log = str(self.root / "log")
        self._run("pg_ctl", "start", "-w", "-t", str(WAIT_S), "-D", self._data, "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is like a power failure of the machine."""
        self._run("pg_ctl", "stop", "-w", "-t", str(WAIT_S), "-m", mode, "-D", self._data)

    @property
    def running(self) -> bool:
        """True if there is a server."""
        return self._call("pg_ctl", "status", "-D", self._data).returncode == 0

    def new_database(self, template: str = "template1") -> str:
        """Return the URL of an empty database that no other test uses; or of a copy of another one."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def opened_database(self) -> str:
        """Return the URL of a database with a store's empty tables: a copy, which is cheaper than making them."""
        if not self._opened:
            from koala.store import Store

            url = self.new_database()
            Store.open(url).close()
            self._opened = url.partition("?")[0].rpartition("/")[2]
        return self.new_database(self._opened)

    def url(self, database: str) -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://{USER}@/{database}?host={self.root}"

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement, and return the first value of its answer."""
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
        # Its output goes to a file, because a started server would keep a pipe open.
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


def _room() -> Path:
    """Return a directory in memory, if there is plenty: servers are killed here, and machines are not."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        # The free space of the file system can exceed the memory that is left.
        free_bytes = min(shutil.disk_usage(MEMORY).free, _available_memory_bytes())
        if free_bytes >= MEMORY_FREE_BYTES:
            return MEMORY
    return ROOM


def _available_memory_bytes() -> int:
    """Return what the kernel can provide without swapping; 0 if it does not report that."""
    told = re.search(r"^MemAvailable:\s*(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return 0 if told is None else int(told[1]) * 1024


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a directory with all its contents and their owners."""
    subprocess.run(["cp", "-a", source, target], check=True)


def shared_server(request: pytest.FixtureRequest, directories: pytest.TempPathFactory) -> PostgresServer:
    """Return the server of this test process. A test that stops it starts it again."""
    config = request.config
    if _RUNNING not in config.stash:
        base = directories.getbasetemp()
        stack = contextlib.ExitStack()
        config.stash[_RUNNING] = stack.enter_context(
            postgres_server(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base)
        )
        # Not as a cleanup of the configuration: after a session xdist allows its process only a few seconds.
        request.session.addfinalizer(stack.close)
    return config.stash[_RUNNING]


@contextlib.contextmanager
def postgres_server(kept: Path | None = None) -> Iterator[PostgresServer]:
    """Run a server during the block; its first files are kept in a directory if one is given."""
    missing = _missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing}; install it, CI tests everything")
    if missing:
        pytest.skip(missing)
    programs = _programs()
    assert programs is not None
    # The path of a unix socket must be short, so this is not below pytest's directory.
    root = Path(tempfile.mkdtemp(prefix="koala-pg-", dir=_room()))
    server = PostgresServer(root, programs)
    try:
        if os.geteuid() == 0:
            shutil.chown(root, "postgres")
        server.create(kept)
        server.start()
        yield server
    finally:
        if server.running:
            server.stop("immediate")
        shutil.rmtree(root)
