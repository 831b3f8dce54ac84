"""Grid Engine (SGE, Son of Grid Engine, Univa and Altair) as a batch system: shell scripts that use its commands.

What they print is parsed in ``koala.sites.batch.grid_engine.listing`` and ``koala.sites.batch.grid_engine.history``;
the functions that they call are in the files ``*.sh`` beside this one. All components
run in the parallel environment of the settings. Without one there, those of more than one processor take the first
that the queue offers and that lets a job start processes on its other nodes, or else the first it offers.
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

# Of so many words of a complaint a reason is made.
REASON_CHARACTERS_MAX = 500
# What qsub exits with when a limit on the number of jobs is reached, and when its options make no sense.
_EXIT_LATER = 25
_EXIT_OPTIONS = 2
_EXIT_NO_COMMAND = 127

_REFUSED = re.compile(
    r"unable to run job|rejected|no parallel environment|denied|no suitable queues|invalid|^koala:",
    re.IGNORECASE | re.MULTILINE,
)
# Words of one who got no answer, or who would get another one later.
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

    An ``account`` is a project here (``-P``): that is what shares and rights hang on, while ``-A`` is a mere tag.
    """

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings

    def submit(self, submission: BatchSubmission) -> str:
        """``-C ''``, because an application's text may hold lines that look like options to qsub. A job in a
        reservation gets no time limit of its own: it ends with the reservation, and one of its length is refused.
        """
        settings, launch = self._settings, submission.launch
        words = ["qsub", "-terse", "-C", "", "-b", "n", "-r", "n", "-m", "n", "-j", "y", "-S", "/bin/sh"]
        words += ["-N", JOB_NAME_PREFIX + launch.token, "-A", launch.token, "-wd", submission.home]
        # The colon is for a path that holds one.
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
            # Else a cell starts whatever fits, and a wide component waits for as long as small jobs come.
            words += ["-R", "y"]
        if launch.exclude_nodes:
            # Refused where there are no other nodes (-w e); else it would wait in the queue for ever.
            words += ["-w", "e", "-l", f"hostname=!({'|'.join(launch.exclude_nodes)})"]
        if launch.licenses:
            words += ["-l", ",".join(f"{name}={count}" for name, count in launch.licenses)]
        preface, environment = self._environment(launch.processors)
        options = shlex.join(settings.submit_options)
        script = shlex.quote(_below(submission.home, submission.script))
        # They come last, so that they win over what the site says of all jobs.
        asking, needs = request_words(settings, launch.shape, launch.task_count)
        parts = (shlex.join(words), environment, options, needs, script)
        return preface + asking + " ".join(part for part in parts if part) + "\n"

    def parse_submitted(self, printed: str) -> BatchId:
        """The one line that is a number; qsub may warn before it."""
        ids = [
            line.strip() for line in printed.splitlines() if re.fullmatch(r"\s*[1-9][0-9]{0,18}\s*", line, re.ASCII)
        ]
        if len(ids) != 1:
            raise BatchOutputError(f"qsub printed no job id: {_shortened(printed)!r}")
        return ids[0]

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """Silence of the qmaster and a full queue pass; what it says of a job's options does not."""
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
        """No queue has what the job asks for, or there are no words for it here."""
        return _ASKS_TOO_MUCH.search(refusal) is not None

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """By the name alone, which all of a token's jobs have: an id may belong to another job by now."""
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
        """From now on if the time has come already; an operator allows it by the user list ``arusers``. What jobs
        hold then by their limits is refused, and there is no way around that."""
        preface, environment = self._environment(wanted.processors)
        words = ["koala_reserve", wanted.name, str(math.ceil(wanted.begin_s))]
        words += ["-d", str(max(1, math.ceil(wanted.length_s)))]
        if self._settings.queue is not None:
            words += ["-q", self._settings.queue]
        functions = _file("commands.sh") + _file("reservation.sh")
        return functions + preface + f"{shlex.join(words)} {environment}".rstrip() + "\n"

    def parse_reserved(self, printed: str) -> str:
        """The reservation's id."""
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
        """A line for each queue at a host, such as ``all.q@n1 BIP 0/2/4 0.10 lx-amd64``; the rest is for people."""
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
        """What comes before a command, and its words for the parallel environment."""
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
    """One line of it, for a reason."""
    words = " ".join(text.split()).removesuffix(" Exiting.")
    return words if len(words) <= REASON_CHARACTERS_MAX else words[: REASON_CHARACTERS_MAX - 1] + "…"
