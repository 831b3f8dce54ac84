"""The values that start one component at a site, and the names of the files that hold them.

Runners write these values and sites carry them out; neither imports the other, both import this module. How a site
keeps a component is in ``koala.sites``, what a component's script does is in ``koala.runners``.
"""

from __future__ import annotations

import enum
import math
import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from koala.model.checkpoint import Checkpoint
from koala.model.grid import Containers
from koala.model.messages import Token
from koala.model.nodes import TaskNeeds, TaskShape
from koala.model.request import Application, JobId, JobType, Licenses
from koala.model.travelling import NAME_BYTES_MAX

# The files of a component's directory, as its script and its site use them. Each appears whole or not at all.
SCRIPT = "script"  # what the component runs, written by a runner
PID = "pid"  # its process: id, start time and boot, so that a reused id is recognised
READY = "ready"  # the script waits at the barrier; holds the name of its node
GO = "go"  # the barrier is open; one NAME=value a line
SAVE = "save"  # the component will be ended soon, and must ask its application to save its state
ASKED = "asked"  # how often the application was asked to save its state
ABORT = "abort"  # the component must not start its application, or must end
EXIT = "exit"  # how the script ended; see the words below
LOG = "log"  # messages of the script and its helpers, for fault finding
STDOUT = "stdout"
STDERR = "stderr"
LAST_LINE = "last-line"  # the last line that a failed application wrote to standard error
USAGE = "usage"  # what the application has used: milliseconds of processor time, and KiB of memory at its peak
WORK = "workspace"  # where the application starts, unless it names a directory
SITE = "site"  # shell functions with which a site with nodes of its own lists them and runs commands on them
NODES = "nodes"  # the component's nodes: a line with name and processors for each, the script's own first
ADDRESSES = "addresses"  # the addresses of the script's own node, separated by blanks; empty if unknown
INBOX = "inbox"  # mail from other components, a file each
OUTBOX = "outbox"  # mail to other components, a file each

# The first word of EXIT. EXITED is followed by the application's exit code.
EXITED = "exited"
ABORTED = "aborted"
GAVE_UP = "gave-up"
KILLED = "killed"
NO_NODES = "no-nodes"  # its site did not report its nodes
UNWRITTEN = "unwritten"  # its directory could not be written for a while

# Limits on the inputs of one component.
TOKEN_CHARACTERS_MAX = 128
BARRIER_TIMEOUT_S_MAX = 30 * 86_400
GO_BYTES_MAX = 262_144
MAIL_BYTES_MAX = 1_048_576
# Input files, plus the archive of the files that travel with the job.
LINKS_MAX = 1_001
# A system accepts 4,095 bytes as one path. This many are for the part that a job names; the rest is for the site's
# own work directory and what Koala puts in between.
JOB_PATH_BYTES_MAX = 2_048

BARRIER_TIMEOUT_DEFAULT_S = 3_600.0
# An error message shows at most this many characters of a path.
PATH_CHARACTERS_TOLD = 80

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAIL_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")


class LaunchError(ValueError):
    """Part of a launch cannot reach a site unchanged; ``field`` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def for_user(self) -> str:
        """Return the field, what is wrong with it and what to do."""
        return f"{self.field}: {self.message}"


def check_token(token: Token) -> None:
    """Check that a token can name a directory and stand in listings: letters, digits, '.', '_' and '-'."""
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise LaunchError("token", f"longer than {TOKEN_CHARACTERS_MAX} characters (TOKEN_CHARACTERS_MAX)")
    if _TOKEN.fullmatch(token) is None:
        raise LaunchError("token", f"{token!r} is not a token; use letters, digits, '.', '_' and '-'")


def check_mail_name(name: str) -> None:
    """Check that the name of a piece of mail can be a file name in a component's inbox."""
    if _MAIL_NAME.fullmatch(name) is None:
        raise LaunchError("mail", f"{name!r} is not a name for mail; use lower-case letters, digits and '-'")


def check_relative(field: str, path: str) -> None:
    """Check a path that must stay below its directory."""
    _check_text(field, path)
    if not path:
        raise LaunchError(field, "is empty; name a file")
    if path.startswith("/"):
        raise LaunchError(field, f"{path!r} is absolute; write a path relative to the component's directory")
    _check_no_climbing(field, path)
    _check_length(field, path)


def _check_no_climbing(field: str, path: str) -> None:
    depth = 0
    for step in path.split("/"):
        if step == "..":
            depth -= 1
        elif step not in ("", "."):
            depth += 1
        if depth < 0:
            raise LaunchError(field, f"{path!r} climbs out of the component's directory; leave out the '..'")


def check_path(field: str, path: str, below: str | None = None) -> None:
    """Check a path that a job names, absolute or ``below`` the directory where its application starts."""
    _check_text(field, path)
    if not path:
        raise LaunchError(field, "is empty; name a file or leave it out")
    if not path.startswith("/"):
        _check_no_climbing(field, path)
        path = path if below is None else f"{below}/{path}"
    _check_length(field, path)


def _check_length(field: str, path: str) -> None:
    longest, size = max(len(step.encode()) for step in path.split("/")), len(path.encode())
    if longest > NAME_BYTES_MAX:
        raise LaunchError(
            field,
            f"{_cut(path)} has a name of {longest} bytes, more than {NAME_BYTES_MAX} (NAME_BYTES_MAX), which no site "
            "can write; give it a shorter one",
        )
    if size > JOB_PATH_BYTES_MAX:
        raise LaunchError(
            field,
            f"{_cut(path)} has {size} bytes, more than {JOB_PATH_BYTES_MAX} (JOB_PATH_BYTES_MAX); shorten it",
        )


def _cut(path: str) -> str:
    return repr(path) if len(path) <= PATH_CHARACTERS_TOLD else f"{path[:PATH_CHARACTERS_TOLD]!r}..."


def _check_text(field: str, text: str) -> None:
    if "\0" in text:
        raise LaunchError(field, "holds a NUL character, which no program can receive; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LaunchError(field, f"{text!r} is not text that UTF-8 can write") from None


def _check_variable(field: str, name: str) -> None:
    if _VARIABLE.fullmatch(name) is None:
        raise LaunchError(field, f"{name!r} is not the name of a variable; use letters, digits and '_'")


def is_node_name(name: str) -> bool:
    """Return True if this can be the name of a node in any batch system: it is no list, no pattern and no option."""
    return _NODE_NAME.fullmatch(name) is not None


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of one component, named by its token for ever.

    ``part`` is its index among the job's ``parts`` components. ``walltime_s`` counts from the release of the barrier.
    A component that is not released within ``barrier_timeout_s`` ends by itself. ``search_path`` are directories of
    the site where programs are looked for first, such as that of ``mpiexec``. ``begin_at`` is when the job is planned
    to start, in seconds since the epoch, for a site that can keep processors for that moment. ``exclude_nodes`` are
    nodes that it is kept off, if that leaves room for it. ``needs`` is what each task needs beside processors, and
    ``containers`` how the site runs container images. ``checkpoint`` is how its application saves its state.
    ``name`` is that of the job, ``licenses`` are the floating licences of the site that it holds. ``starts_steps`` is
    true where the application has the batch system start processes, which are no children of the application.

    Raises ``LaunchError`` for anything that cannot reach the application byte for byte.
    """

    token: Token
    job: JobId
    processors: int
    application: Application
    part: int = 0
    parts: int = 1
    job_type: JobType = JobType.PLAIN
    barrier_timeout_s: float = BARRIER_TIMEOUT_DEFAULT_S
    walltime_s: float | None = None
    search_path: tuple[str, ...] = ()
    begin_at: float | None = None
    exclude_nodes: tuple[str, ...] = ()
    needs: TaskNeeds | None = None
    containers: Containers | None = None
    checkpoint: Checkpoint | None = None
    name: str = ""
    starts_steps: bool = False
    licenses: Licenses = ()

    def __post_init__(self) -> None:
        check_token(self.token)
        if self.processors < 1:
            raise LaunchError("processors", f"{self.processors} is too few; a component needs 1 or more")
        if not 0 <= self.part < self.parts:
            raise LaunchError("part", f"{self.part} is not one of {self.parts} parts, counted from 0")
        if not 0 < self.barrier_timeout_s <= BARRIER_TIMEOUT_S_MAX:
            raise LaunchError(
                "barrier_timeout_s", f"write a time above 0 and up to {BARRIER_TIMEOUT_S_MAX} (BARRIER_TIMEOUT_S_MAX)"
            )
        if self.walltime_s is not None and not (0 < self.walltime_s < math.inf):
            raise LaunchError("walltime_s", f"{self.walltime_s} is not a time above zero")
        if self.begin_at is not None and not (0 <= self.begin_at < math.inf):
            raise LaunchError("begin_at", f"{self.begin_at} is not a time since the epoch; leave it out")
        for node in self.exclude_nodes:
            if not is_node_name(node):
                raise LaunchError("exclude_nodes", f"{node!r} is not the name of a node")
        for directory in self.search_path:
            _check_text("search_path", directory)
            if not directory.startswith("/") or ":" in directory:
                raise LaunchError("search_path", f"{directory!r} is not an absolute directory without ':'")
        self._check_application(self.application)

    @property
    def shape(self) -> TaskShape:
        """The resources that one of its tasks holds."""
        per_task = self.application.processors_per_task
        return TaskShape.of(1 if self.processors % per_task else per_task, self.needs)

    @property
    def task_count(self) -> int:
        """The number of its tasks."""
        return self.processors // self.shape.processors

    def _check_image(self, image: str) -> None:
        _check_text("image", image)
        if not image.isprintable() or image != image.strip() or image.startswith("-"):
            raise LaunchError("image", f"{image!r} is not the name of an image; write a name, a path or an address")
        if not image.startswith("/"):
            _check_no_climbing("image", image)

    def _check_application(self, application: Application) -> None:
        if application.script is None and not application.executable:
            raise LaunchError("application", "there is nothing to run; name an executable or give a script")
        if application.executable is not None and application.executable.startswith("-"):
            raise LaunchError(
                "executable", f"{application.executable!r} looks like an option; write './' in front of it"
            )
        _check_text("executable", application.executable or "")
        _check_text("script", application.script or "")
        for argument in application.arguments:
            _check_text("arguments", argument)
        if application.image is not None:
            self._check_image(application.image)
        for name, value in application.environment:
            _check_variable("environment", name)
            _check_text(f"environment {name}", value)
        for field in ("directory", "stdin", "stdout", "stderr"):
            path: str | None = getattr(application, field)
            if path is not None:
                check_path(field, path, below=None if field == "directory" else application.directory)


class InputLink(msgspec.Struct, frozen=True, kw_only=True):
    """An input file: ``source`` in the site's file area appears as ``destination`` where the application starts."""

    source: str
    destination: str

    def __post_init__(self) -> None:
        check_relative("source", self.source)
        check_relative("destination", self.destination)


class Go(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a component receives when its barrier opens: variables for the application, and its input files.

    A value may hold anything but NUL and newline. These variables replace variables of the same name that the user
    set.
    """

    environment: tuple[tuple[str, str], ...] = ()
    links: tuple[InputLink, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.environment:
            _check_variable("go", name)
            _check_text(f"go {name}", value)
            if "\n" in value:
                raise LaunchError(f"go {name}", "holds a newline, which a line of text cannot carry")
        if len(self.links) > LINKS_MAX:
            raise LaunchError("links", f"more than {LINKS_MAX} files (LINKS_MAX)")
        if len(self.text.encode()) > GO_BYTES_MAX:
            raise LaunchError("go", f"more than {GO_BYTES_MAX} bytes of variables (GO_BYTES_MAX)")

    @property
    def text(self) -> str:
        """The content of the file ``GO``: data, one variable a line, which nothing ever evaluates."""
        return "".join(f"{name}={value}\n" for name, value in self.environment)


class NodeShare(msgspec.Struct, frozen=True):
    """A node, by its name at its site or by an address, and the number of its processors that a component has."""

    name: str
    processors: int


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a job as the others see it: the address of its first node, its processors, all its nodes.

    Without ``nodes`` it is on one node, ``host``. One rank or worker has ``processors_per_task`` of its processors.
    Its nodes may have more processors than it asked for, where a site assigns whole nodes, but not fewer.
    """

    part: int
    host: str
    processors: int
    nodes: tuple[NodeShare, ...] = ()
    processors_per_task: int = 1

    def __post_init__(self) -> None:
        if self.processors_per_task < 1 or self.processors % self.processors_per_task != 0:
            raise LaunchError(
                "processors_per_task",
                f"{self.processors} processors are not whole tasks of {self.processors_per_task}; write a divisor",
            )
        for name in (self.host, *(node.name for node in self.nodes)):
            if re.fullmatch(r"[A-Za-z0-9_.:%\[\]-]+", name) is None or name.startswith("-"):
                raise LaunchError("host", f"{name!r} is not the name or address of a node")
        for node in self.nodes:
            if node.processors < 1:
                raise LaunchError("nodes", f"{node.name} gives {node.processors} processors; leave it out")
        together = sum(node.processors for node in self.shares)
        if together < self.processors:
            raise LaunchError(
                "nodes",
                f"the nodes of component {self.part} have {together} processors together, and it needs "
                f"{self.processors}; look at what its site gave it",
            )

    @property
    def shares(self) -> tuple[NodeShare, ...]:
        """All its nodes in order."""
        return self.nodes or (NodeShare(self.host, self.processors),)

    @property
    def tasks(self) -> int:
        """The number of its ranks or workers."""
        return self.processors // self.processors_per_task


# ------------------------------------------------------------------------ the names of an application's streams

# The letters of patterns, and their meanings.
STREAM_LETTERS = {
    "j": "the number of the job; in a batch script the value of SLURM_JOB_ID",
    "J": "the same",
    "A": "the number of its array, or of the job outside an array",
    "a": "its index in its array",
    "x": "its name",
    "n": "the node, counted from 0 in its component: 0",
    "t": "the task: 0",
    "N": "the first node of the component, without its domain",
    "u": "the user that runs it at its site",
}
STREAM_ADVICE = f"write one of {', '.join(f'%{letter}' for letter in STREAM_LETTERS)}, and %% for a percent sign"
# Slurm's value for a job that is no element of an array.
NO_INDEX = "4294967294"
# A digit in front of the letter pads a number with zeros to this many places.
_PATTERN = re.compile(r"%(%|([0-9]?)([A-Za-z]))")
_LEFT = re.compile(r"(%%|%[0-9]?[NujJ])")


def stream_problem(name: str) -> str | None:
    """Return what is wrong with the patterns of a name; None if nothing is."""
    rest = _PATTERN.sub(lambda found: "" if found[3] is None or found[3] in STREAM_LETTERS else found[0], name)
    if "%" not in rest:
        return None
    at = rest.index("%")
    return f"{rest[at : at + 2]} stands for nothing"


def filled_in(
    name: str, *, job: int, job_name: str, array: int | None, index: int | None, batch_script: bool = False
) -> str:
    """Return the name with all values that the driver has. Unknown patterns stay as they are; so does the job number
    of a batch script, because its batch system may give it another."""
    values = {
        **({} if batch_script else {"j": str(job), "J": str(job)}),
        "A": str(job if array is None else array),
        "a": NO_INDEX if index is None else str(index),
        "x": job_name.replace("/", "_"),
        "n": "0",
        "t": "0",
    }

    def value(found: re.Match[str]) -> str:
        if found[3] not in values:
            return found[0]
        text = values[found[3]].replace("%", "%%")
        return text.zfill(int(found[2])) if found[2] and text.isdigit() else text

    return _PATTERN.sub(value, name)


class SitePart(enum.Enum):
    """A part of a name that is known only where the component runs."""

    NODE = "N"
    USER = "u"
    JOB = "j"


class SitePiece(NamedTuple):
    """A part of a name that its site fills in; a number has at least ``places`` digits."""

    part: SitePart
    places: int = 0


def stream_parts(name: str) -> list[str | SitePiece]:
    """Split a filled-in name into plain text and parts that its site fills in."""
    found: list[str | SitePiece] = []
    for piece in filter(None, _LEFT.split(name)):
        if piece != "%%" and _LEFT.fullmatch(piece):
            part = SitePart(piece[-1].replace("J", "j"))
            found.append(SitePiece(part, int(piece[1:-1] or 0) if part is SitePart.JOB else 0))
            continue
        text = "%" if piece == "%%" else piece
        if found and isinstance(found[-1], str):
            found[-1] += text
        else:
            found.append(text)
    return found


# ------------------------------------------------------------------------ the batch system that a script is for


class BatchDialect(enum.Enum):
    """The batch system that a script is written for, and the start of its option lines."""

    SLURM = "SBATCH"
    PBS = "PBS"
    GRID_ENGINE = "$"

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.names.title

    @property
    def names(self) -> DialectNames:
        """By what names its scripts look for what is theirs."""
        return _NAMES[self]


class DialectNames(NamedTuple):
    """By what names a script for a batch system looks for what is its own.

    ``word`` is its name in a component's script. ``number`` is the number of its job, as its own batch system sets
    it; ``restarts`` is how often the job was started again. ``indices`` are an element's index in its array, and
    ``ends`` the first and last index of the array and their step.
    """

    title: str
    word: str
    number: str | None = None
    restarts: str | None = None
    indices: tuple[str, ...] = ()
    ends: tuple[str, str, str] = ("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP")


_NAMES = {
    BatchDialect.SLURM: DialectNames("Slurm", "slurm", number="SLURM_JOB_ID", restarts="SLURM_RESTART_COUNT"),
    BatchDialect.PBS: DialectNames("PBS", "pbs", indices=("PBS_ARRAY_INDEX", "PBS_ARRAYID")),
    BatchDialect.GRID_ENGINE: DialectNames(
        "Grid Engine",
        "grid-engine",
        number="JOB_ID",
        indices=("SGE_TASK_ID",),
        ends=("SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"),
    ),
}
# An element of an array is told of its array and its index by these names, whatever its script is.
ARRAY_JOB_VARIABLES = ("KOALA_ARRAY_JOB", "SLURM_ARRAY_JOB_ID")
ARRAY_INDEX_VARIABLES = ("KOALA_ARRAY_INDEX", "SLURM_ARRAY_TASK_ID")
ARRAY_SIZE_VARIABLES = ("KOALA_ARRAY_SIZE", "SLURM_ARRAY_TASK_COUNT")


# The sign of Grid Engine is often followed by prose.
OPTION_LINE = re.compile(r"#(?:(SBATCH|PBS)(?=[ \t]|$)|(\$)(?=[ \t]+-))")


def dialect_of_line(line: str) -> BatchDialect | None:
    """Return the batch system that a line has options for; None if it has none."""
    found = OPTION_LINE.match(line)
    return None if found is None else BatchDialect(found[1] or found[2])


@lru_cache(maxsize=64)
def dialect_of(script: str | None) -> BatchDialect | None:
    """Return the batch system that a script is written for; None if it has no options.

    Option lines count up to the first command. A script may have options for several systems, so that it runs under
    each of them: then those for Slurm count, or else those that come first.
    """
    found: BatchDialect | None = None
    at = 0
    while script is not None and at < len(script):
        end = script.find("\n", at)
        end = len(script) if end < 0 else end
        line = script[at:end]
        if line.strip() and not line.lstrip().startswith("#"):
            break  # the first command
        dialect = dialect_of_line(line)
        if dialect is BatchDialect.SLURM:
            return dialect
        found = found or dialect
        at = end + 1
    return found
