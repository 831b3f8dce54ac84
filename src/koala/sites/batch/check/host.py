"""The steps of a check that need no batch system: connection, shell, clock, work directory, MPI and files."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Sequence
from urllib.parse import urlsplit

from koala.model.grid import Claims
from koala.sites.batch.check.steps import (
    QUESTION_TIMEOUT_S,
    CheckContext,
    StepResult,
    StepStatus,
    UnansweredError,
    failed,
    listed,
    passed,
    warned,
)
from koala.sites.batch.scripts import directory
from koala.sites.shell_script import assign, directory_word, shell_file

CLOCKS_APART_S = 5.0
# A login that takes longer than this costs more than most commands. The shortest of several attempts counts.
LOGIN_MS_MAX = 50.0
LOGIN_TRIES = 3
ROOM_BYTES_MIN = 100_000_000
FILE_SERVER_PORTS = {"ftp": 21, "gsiftp": 2811}
GRIDFTP_CLIENT = "globus-url-copy"

# Programs of every POSIX system that components and scripts use.
_TOOLS = ("cat", "cp", "date", "df", "ln", "ls", "mkdir", "mv", "rm", "sed", "sleep", "uname")
_GREETING = "koala-answers"
_SSH_ADVICE = (
    ("permission denied", "let 'ssh {host} true' work without a password: with ssh-copy-id {host}, or with ssh-add"),
    ("could not resolve", "add the host to ~/.ssh/config, or correct 'ssh: {host}' in the grid file"),
    ("host key verification", "run 'ssh {host}' once by hand and look at the key that it shows"),
    ("refused", "check that an SSH server runs there, and the Port in ~/.ssh/config"),
    ("timed out", "check that the host is up and can be reached from here; a VPN may be needed"),
    ("no route", "check that the host can be reached from here; a VPN may be needed"),
)  # fmt: skip


async def connection(context: CheckContext) -> StepResult:
    """Check that commands reach the login host, and that their output comes back unchanged."""
    settings = context.settings
    text = f"printf '%s\\n' {_GREETING}\n"
    try:
        first = await context.ask(text)
        asked_at = context.clock()
        reply = await context.ask(text)
        round_trip_ms = (context.clock() - asked_at) * 1000
    except UnansweredError as error:
        return failed(f"no answer: {error}", _connection_advice(context, str(error)))
    if reply.code != 0:
        return failed(f"commands do not run there: {reply.reason}", _connection_advice(context, reply.reason))
    for each in (first, reply):
        if each.greeting or each.printed != f"{_GREETING}\n":
            noise = " ".join(f"{each.greeting} {each.printed}".replace(_GREETING, "").split())[:80]
            return failed(
                f"the login there prints something of its own: {noise!r}",
                "let the shell's start files print nothing where there is no terminal: [ -t 1 ] || return",
            )
    where = f"{settings.ssh} answers" if settings.ssh else "commands run on this machine"
    through = f", through {shlex.join(settings.through)}" if settings.through else ""
    return passed(f"{where}{through}; a round trip takes {round_trip_ms:.0f} ms")


def _connection_advice(context: CheckContext, complaint: str) -> str:
    host = context.settings.ssh
    if host is None:
        return (
            "check 'through' in the grid file: its words stand in front of 'sh'"
            if context.settings.through
            else ("check that 'sh' can be started on this machine")
        )
    for part, advice in _SSH_ADVICE:
        if part in complaint.lower():
            return advice.format(host=host)
    return f"find out with: ssh -v -o BatchMode=yes {host} true"


async def shell(context: CheckContext) -> StepResult:
    """Check for a POSIX shell with the usual programs."""
    reply = await context.ask(assign(koala_programs=" ".join(_TOOLS)) + shell_file(__package__, "shell.sh"))
    if reply.code != 0:
        return failed(f"sh is not a POSIX shell: {reply.reason}", "put a POSIX sh first in the PATH there")
    lines = reply.printed.splitlines()
    missing = [line.removeprefix("missing ") for line in lines if line.startswith("missing ")]
    if missing:
        return failed(f"missing there: {listed(missing)}", "install them, or correct the PATH of the login there")
    return passed(f"a POSIX sh, {lines[-1] if lines else 'of a system without a name'}")


async def login(context: CheckContext) -> StepResult | None:
    """Measure the start of the account's shell, which begins every session of an ssh server. There is no result where
    a plain shell runs the commands."""
    if context.settings.ssh is None:
        return None
    plain_s, login_s = [], []
    for _ in range(LOGIN_TRIES):
        plain_s.append(await _took_s(context, ":\n"))
        login_s.append(await _took_s(context, shell_file(__package__, "login.sh")))
    costs_ms = max(0.0, (min(login_s) - min(plain_s)) * 1000)
    if costs_ms < LOGIN_MS_MAX:
        return passed(f"the shell of the account starts in {costs_ms:.0f} ms")
    return warned(
        f"the shell of the account takes {costs_ms:.0f} ms to start, and each session and transfer begins with it",
        "begin its start file (~/.bashrc, ~/.zshenv, ~/.cshrc) with what ends it for commands: "
        "case $- in *i*) ;; *) return ;; esac",
    )


async def _took_s(context: CheckContext, text: str) -> float:
    asked_at = context.clock()
    await context.ask(text)
    return context.clock() - asked_at


async def clocks(context: CheckContext) -> StepResult:
    """Check that the clock of the site agrees with this machine's."""
    before = context.clock()
    reply = await context.ask("date +%s\n")
    between = (before + context.clock()) / 2
    word = reply.printed.strip()
    if reply.code != 0 or not (word.isascii() and word.isdigit()):
        return warned(f"its clock cannot be read: {reply.reason}", "'date +%s' should print the seconds since 1970")
    apart_s = int(word) + 0.5 - between
    if abs(apart_s) <= CLOCKS_APART_S:
        return passed("it agrees with this machine's")
    words = f"it is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} this machine's"
    if context.settings.claims is Claims.RESERVATION:
        return failed(words, "let NTP set both clocks: reservations begin by the clock of the site")
    return warned(words, "let NTP set both clocks; times in logs of the two do not agree")


async def work_directory(context: CheckContext) -> StepResult:
    """Check that the work directory exists or can be created, takes files, and has room."""
    named = context.settings.work_directory
    values = f"koala_work={directory_word(named)}\n{assign(koala_trial=f'.koala-{context.token}')}"
    reply = await context.ask(values + shell_file(__package__, "work_directory.sh"))
    lines = reply.printed.splitlines()
    if reply.code != 0 or len(lines) < 2 or not lines[1].startswith("/"):
        return failed(
            f"{named}: {reply.reason}", "name a directory that you may write and all nodes see: 'work_directory: ...'"
        )
    context.work = lines[1]
    made = " (made just now)" if lines[0] == "made" else ""
    fields = lines[2].split() if len(lines) > 2 else []
    if len(fields) < 6 or not fields[3].isdigit():
        return passed(f"{context.work}{made}; how much room it has is not told")
    room_bytes = int(fields[3]) * 1024
    if room_bytes < ROOM_BYTES_MIN:
        return warned(
            f"{context.work}{made} has {room_bytes / 1e6:.0f} MB of room", "make room, or choose another place"
        )
    return passed(f"{context.work}{made} can be written; {room_bytes / 1e9:.1f} GB of room")


async def owner(context: CheckContext) -> StepResult:
    """Check that nobody else owns the work directory. It is not claimed here: the first ``koala up`` does that."""
    file = f"{context.work}/{directory.OWNER}"
    reply = await context.ask(assign(koala_owner=file) + shell_file(__package__, "owner.sh"))
    if reply.code != 0:
        return failed(f"{file}: {reply.reason}", "remove it, or give this site a work_directory of its own")
    if not reply.printed:
        return passed("nobody uses the work directory; the first koala up takes it")
    name = reply.printed.removeprefix("owned\n").removesuffix("\n")
    if name == context.owner:
        return passed("the work directory is this Koala's")
    return failed(
        f"{context.work} is in use by another Koala, or for another site: {name or 'one without a name'}",
        "give this site a work_directory of its own; or name the state directory of that Koala with --state; or "
        f"remove {file} if that one is gone for good",
    )


async def mpiexec(context: CheckContext) -> StepResult:
    """Check that MPICH's mpiexec is where components look for it."""
    path = [*context.settings.search_path, *(() if context.settings.ssh else context.programs_here)]
    directories = "".join(f"{directory_word(each)}:" for each in path)
    absent = await _absent(context, context.settings.search_path)
    if absent:
        return warned(f"search_path names {listed(absent)}, which is not there", "correct 'search_path: [...]'")
    version = "command -v mpiexec && mpiexec --version 2>&1 </dev/null | sed -n 1,3p"
    reply = await context.ask(f"PATH={directories}$PATH\n{version}\n")
    advice = "for jobs of the type mpi install MPICH there and name its directory: 'search_path: [/.../bin]'"
    if reply.code != 0:
        return warned("there is none; jobs of the type mpi cannot run here", advice)
    where, *about = reply.printed.splitlines()
    if not any("HYDRA" in line for line in about):
        kind = about[0].strip() if about else "of an unknown kind"
        return warned(f"{where} is not MPICH's but {kind}", advice)
    version = next((line.split()[-1] for line in about if line.split()[:1] == ["Version:"]), "")
    return passed(f"{where}, MPICH {version}".rstrip())


async def containers(context: CheckContext) -> StepResult:
    """Check that the site has the program that runs container images, and the directory of the images."""
    settings = context.site.containers
    assert settings is not None, "a site that runs images"
    path = "".join(f"{directory_word(each)}:" for each in context.settings.search_path)
    reply = await context.ask(f"PATH={path}$PATH\ncommand -v {settings.program}\n")
    if reply.code != 0:
        advice = f"install {settings.tool} there and name its directory: 'search_path: [/.../bin]'"
        return warned(f"there is no {settings.program}; jobs with an image cannot run here", advice)
    where = reply.printed.strip()
    if settings.images is None or not settings.images.startswith("/"):
        return passed(where)
    if await _absent(context, [settings.images]):
        return warned(f"{where}, but {settings.images} is not there", "correct 'images', where the images are")
    return passed(f"{where}; images in {settings.images}")


async def _absent(context: CheckContext, directories: Sequence[str]) -> list[str]:
    """Return the directories that do not exist."""
    if not directories:
        return []
    words = " ".join(map(directory_word, directories))
    return (await context.ask(f'for each in {words}; do [ -d "$each" ] || echo "$each"; done\n')).printed.splitlines()


async def files(context: CheckContext) -> StepResult:
    """Check that files can be moved to and from the site, and how."""
    server = context.site.file_server
    if server is None:
        return await _without_server(context)
    answers = await file_server_answers(server)
    if answers.sign is not StepStatus.PASSED:
        return answers
    client = "there" if await _has(context, GRIDFTP_CLIENT) else "here" if shutil.which(GRIDFTP_CLIENT) else None
    if client is None:
        return failed(
            f"{answers.words}, but {GRIDFTP_CLIENT} is neither at the site nor on this machine: no file would get to "
            "the site from another one with a file_server",
            "install it at the site or on this machine (Debian: globus-gass-copy-progs), or take file_server out of "
            "the grid file to have files moved by ssh",
        )
    others = await _without_server(context)
    words = f"{answers.words}; {GRIDFTP_CLIENT} is {client}; for sites without a file_server: {others.words}"
    return StepResult(others.sign, words, others.advice)


async def _without_server(context: CheckContext) -> StepResult:
    """Find how files move between this site and a site without a file server."""
    if context.settings.through:
        return passed("files go in a stream through this machine")
    if context.settings.ssh is None:
        return passed("this machine sees its files")
    missing = [] if await _has(context, "rsync") else [context.settings.ssh]
    if shutil.which("rsync") is None:
        missing.append("this machine")
    if missing:
        return warned(
            f"rsync is missing at {' and at '.join(missing)}; files go in a stream, through this machine if need be",
            "nothing, if that will do; or install rsync",
        )
    return passed("rsync is here and there")


async def _has(context: CheckContext, program: str) -> bool:
    """Return True if commands at the site find a program."""
    return (await context.ask(f"command -v {program}\n")).code == 0


async def file_server_answers(url: str) -> StepResult:
    """Check that a GridFTP server greets its clients, as every FTP server does."""
    advice = "write such as ftp://HOST:PORT/DIRECTORY, and see that the server runs there"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or FILE_SERVER_PORTS.get(parts.scheme)
    except ValueError as error:
        return failed(f"file_server {url}: {error}", advice)
    if host is None or port is None:
        return failed(f"file_server {url} names no host and port", advice)
    try:
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                greeting = await reader.read(400)
            finally:
                writer.close()
    except OSError as error:
        return failed(f"{url} does not answer: {str(error) or 'it took too long'}", advice)
    if not greeting.startswith(b"220"):
        return failed(f"{url} does not greet as an FTP server does", advice)
    return passed(f"{url} answers")
