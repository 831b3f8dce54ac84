"""Grid Engine (SGE, Son of Grid Engine, Univa and Altair) as a batch system: shell scripts that use its commands.

``koala.sites.batch.grid_engine.listing`` and ``koala.sites.batch.grid_engine.history`` parse their output; the files
``*.sh`` beside this module contain the functions that they call. All components run in the parallel environment of
the settings. Without one, components of more than one processor take the first environment that the queue offers and
that lets a job start processes on its other nodes, or else the first it offers.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from koala.model.grid import BatchSettings
from koala.model.messages import Token
from koala.sites.batch.grid_engine.history import history_script, read_history
from koala.sites.batch.grid_engine.keys import keys_of
from koala.sites.batch.grid_engine.listing import ListingReader, listing_script
from koala.sites.batch.grid_engine.nodes import request_words
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchSubmission,
    NodeLoad,
    WantedReservation,
)
from koala.sites.shell_script import call, shell_file

# A reason contains at most this much of a complaint.
REASON_CHARACTERS_MAX = 500
# The exit code of qsub at a limit on the number of jobs, and after invalid options.
_EXIT_LATER = 25
_EXIT_OPTIONS = 2
_EXIT_NO_COMMAND = 127

_REFUSED = re.compile(
    r"unable to run job|rejected|no parallel environment|denied|no suitable queues|invalid|^koala:",
    re.IGNORECASE | re.MULTILINE,
)
# Complaints that mean that no answer came, or that a later answer may differ.
_NO_ANSWER = re.compile(
    r"commlib|unable to (send|contact|receive|initialize)|answer list from qmaster|time-?out|try again|"
    r"cannot allocate",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"jobs? (are|is) allowed|limit (is |was )?reached|job limit", re.IGNORECASE)
_ASKS_TOO_MUCH = re.compile(r"no suitable queues|cannot be asked for|unknown resource", re.IGNORECASE)
_QUEUE_AT_HOST = re.compile(
    r"[^@\s]+@(?P<host>\S+)\s+\S+\s+\d+/(?P<used>\d+)/(?P<slots>\d+)\s+(?P<load>\d+(\.\d+)?)\s", re.ASCII
)
_GRANTED = re.compile(r"advance reservation (\d+) has been granted", re.IGNORECASE)


class GridEngineSystem:
    """Grid Engine with the settings of one site.

    An ``account`` is a project (``-P``), since shares and rights depend on projects; ``-A`` is only a label.
    """

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings

    def submit(self, submission: BatchSubmission) -> str:
        """Return the script of a submission. It sets ``-C ''``, since lines of an application's text may look like
        options of qsub. A job in a reservation gets no time limit: it ends with the reservation, and a limit of that
        length is refused."""
        settings, launch = self._settings, submission.launch
        words = ["qsub", "-terse", "-C", "", "-b", "n", "-r", "n", "-m", "n", "-j", "y", "-S", "/bin/sh"]
        words += ["-N", JOB_NAME_PREFIX + launch.token, "-A", launch.token, "-wd", submission.home]
        # The leading colon allows a path that contains one.
        words += ["-o", ":" + _below(submission.home, submission.log)]
        queue = settings.queue_for(launch.application.partition)
        if queue is not None:
            words += ["-q", queue]
        if settings.account is not None:
            words += ["-P", settings.account]
        if submission.reservation is not None:
            words += ["-ar", submission.reservation]
        elif submission.limit_s is not None:
            words += ["-l", f"h_rt={math.ceil(submission.limit_s)}"]
        if submission.reservation is None and launch.processors > 1:
            # Without it a cell starts whatever fits, and a wide component waits as long as small jobs arrive.
            words += ["-R", "y"]
        if launch.exclude_nodes:
            # Refused if there are no other nodes (-w e); otherwise it would wait in the queue for ever.
            words += ["-w", "e", "-l", f"hostname=!({'|'.join(launch.exclude_nodes)})"]
        if launch.licenses:
            words += ["-l", ",".join(f"{name}={count}" for name, count in launch.licenses)]
        preface, environment = self._environment(launch.processors)
        options = shlex.join(settings.submit_options)
        script = shlex.quote(_below(submission.home, submission.script))
        # They come last, so that they override the site's options for all jobs.
        asking, needs = request_words(settings, launch.shape, launch.task_count)
        parts = (shlex.join(words), environment, options, needs, script)
        return preface + asking + " ".join(part for part in parts if part) + "\n"

    def parse_submitted(self, printed: str) -> BatchId:
        """Return the number of the job: the one line that is a number, since qsub may print warnings first."""
        ids = [
            line.strip() for line in printed.splitlines() if re.fullmatch(r"\s*[1-9][0-9]{0,18}\s*", line, re.ASCII)
        ]
        if len(ids) != 1:
            raise BatchOutputError(f"qsub printed no job id: {_shortened(printed)!r}")
        return ids[0]

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """Return why the job can never be accepted. A silent qmaster and a full queue are temporary; errors about
        options are not."""
        said = _shortened(f"{complaint}\n{printed}")
        if code in (_EXIT_OPTIONS, _EXIT_NO_COMMAND):
            return said
        if code == 0 or _NO_ANSWER.search(said) or not _REFUSED.search(said):
            return None
        return None if self.has_no_room(code, printed, complaint) else said

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        """See ``BatchSystem.has_no_room``."""
        return code == _EXIT_LATER or _NO_ROOM.search(f"{complaint}\n{printed}") is not None

    def is_for_what_it_asks(self, refusal: str) -> bool:
        """Return True if no queue has what the job requests, or if its options are unknown here."""
        return _ASKS_TOO_MUCH.search(refusal) is not None

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """Return a script that cancels by name alone, since all jobs of a token have it: an id may be reused by
        now."""
        return _file("commands.sh") + call("koala_delete", "qdel", JOB_NAME_PREFIX + token)

    def listing(self) -> str:
        return listing_script(self._settings)

    def parse_listing(self, printed: str) -> BatchListing:
        return ListingReader(self._settings).read(printed)

    def history(self, jobs: Sequence[BatchJob]) -> str:
        return history_script(jobs)

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        return read_history(printed, jobs)

    def on_node(self) -> str:
        return _file("nodes.sh")

    def reserve(self, wanted: WantedReservation) -> str:
        """Return a script that reserves processors, from now on if the time has passed. An operator grants this by
        the user list ``arusers``. Processors that jobs then hold by their limits are always refused."""
        preface, environment = self._environment(wanted.processors)
        words = ["koala_reserve", wanted.name, str(math.ceil(wanted.begin_s))]
        words += ["-d", str(max(1, math.ceil(wanted.length_s)))]
        if self._settings.queue is not None:
            words += ["-q", self._settings.queue]
        functions = _file("commands.sh") + _file("reservation.sh")
        return functions + preface + f"{shlex.join(words)} {environment}".rstrip() + "\n"

    def parse_reserved(self, printed: str) -> str:
        """Return the reservation's id."""
        found = _GRANTED.findall(printed) or re.findall(
            r"^\s*([1-9][0-9]{0,18})\s*$", printed, re.MULTILINE | re.ASCII
        )
        if len(found) != 1:
            raise BatchOutputError(f"qrsub printed no reservation: {_shortened(printed)!r}")
        return str(found[0])

    def unreserve(self, name: str) -> str:
        """See ``BatchSystem.unreserve``."""
        return _file("commands.sh") + _file("reservation.sh") + call("koala_unreserve", name)

    def loads(self) -> str:
        """See ``BatchSystem.loads``."""
        queue = [] if self._settings.queue is None else ["-q", self._settings.queue]
        return f"{shlex.join(['qstat', '-f', *queue])}\n"

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        """Parse a line for each queue at a host, such as ``all.q@n1 BIP 0/2/4 0.10 lx-amd64``; other lines are for
        people."""
        hosts: dict[str, NodeLoad] = {}
        for line in printed.splitlines():
            found = _QUEUE_AT_HOST.match(line)
            if found is not None:
                before = hosts.get(found["host"], NodeLoad(0, 0, float(found["load"])))
                slots, used = int(found["slots"]), int(found["used"])
                hosts[found["host"]] = NodeLoad(before.processors + slots, before.held + used, before.load)
        return list(hosts.values())

    def version(self) -> str:
        return "koala_said=$(qstat -help) && printf 'Grid Engine: %s\\n' \"$koala_said\" | sed -n 1p\n"

    def _environment(self, processors: int) -> tuple[str, str]:
        """Return what precedes a command, and its words for the parallel environment."""
        name = keys_of(self._settings).parallel_environment
        if name is not None:
            return "", f"-pe {shlex.quote(name)} {processors}"
        if processors == 1:
            return "", ""
        queue = [] if self._settings.queue is None else ["-q", self._settings.queue]
        choose = " ".join(["koala_parallel_environment", '-U "$(id -un)"', shlex.join(queue)]).rstrip()
        return _file("commands.sh") + f"koala_chosen=$({choose}) &&\n", f'-pe "$koala_chosen" {processors}'


def _file(name: str) -> str:
    return shell_file(__package__, name)


def _below(home: str, path: str) -> str:
    return path if path.startswith("/") else f"{home}/{path}"


def _shortened(text: str) -> str:
    """Return a text as one short line, for a reason."""
    words = " ".join(text.split()).removesuffix(" Exiting.")
    return words if len(words) <= REASON_CHARACTERS_MAX else words[: REASON_CHARACTERS_MAX - 1] + "…"
