"""Slurm: shell scripts that use its commands. ``koala.sites.batch.slurm.listing`` and
``koala.sites.batch.slurm.history`` parse their output; the files ``*.sh`` beside this module contain the functions
that they call.

The scripts use only options that all versions since 17 have. A job is found by its user and name alone, so a reused
number or a lost answer causes no confusion.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from koala.model.grid import BatchSettings
from koala.model.messages import Token
from koala.model.nodes import TaskShape
from koala.sites.batch.slurm.history import parse_history
from koala.sites.batch.slurm.listing import DATABASE_S, listing_script, parse_listing
from koala.sites.batch.slurm.options import requested_by
from koala.sites.batch.slurm.quota import terms_of
from koala.sites.batch.slurm.resources import MIB
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
from koala.sites.shell_script import assign, call, quoted, shell_file

# Limit for the wait for the accounting of jobs that the controller has forgotten.
ACCOUNTS_S = 20

# Programs that a signal ended have exit codes above this.
_SIGNALLED = 128
# Errors of sbatch after which a retry may help; all other errors are final.
_TRANSIENT = (
    "unable to contact",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "communication connection failure",
    "zero bytes were transmitted",
    "slurm_receive_msg",
    "send/recv",
    "temporarily unavailable",
    "temporarily unable",
    "resource limits",  # of this machine
    "try again",
    "in standby",
    "transport endpoint",
    "no route to host",
    "protocol authentication error",
    "munge",
    "slurm database",
    "is down",
    "not found",  # for example sbatch itself
)

# Errors of sbatch about too many jobs, in the cluster or of ours.
_TOO_MANY = ("maximum number of jobs", "temporarily unable to accept job")
# A limit on the number of waiting jobs is temporary; a limit on the size or the time of a job has the same text, but
# is permanent.
_POLICY = "Job violates accounting/QOS policy"
_TOO_MANY_WAIT = "SubmitJob"
# Errors about a job that requests more than any job may have; the others concern accounts, partitions and options,
# and would apply to other jobs too.
_ASKS_TOO_MUCH = re.compile(
    rf"{_POLICY}|time limit is invalid|node configuration is not available|more processors requested than permitted|"
    r"node count specification invalid|(memory|license) specification|memory required by task|"
    r"generic resource \(gres\) specification|invalid feature specification",
    re.IGNORECASE,
)


def _file(name: str) -> str:
    return shell_file(__package__, name)


def _literal(path: str) -> str:
    """Return a path for ``--output``, in which Slurm replaces what follows a '%'."""
    return path.replace("%", "%%")


def _needs(shape: TaskShape) -> list[str]:
    """Return the options for a task's needs besides processors. They come last, so that they override the site's
    options."""
    words = []
    if shape.memory_bytes:
        words.append(f"--mem-per-cpu={-(-shape.memory_bytes // (shape.processors * MIB))}M")
    if shape.gpus:
        words.append(f"--gpus-per-task={shape.gpu}:{shape.gpus}" if shape.gpu else f"--gpus-per-task={shape.gpus}")
    if shape.constraint:
        words.append(f"--constraint={shape.constraint}")
    return words


class SlurmSystem:
    """Slurm with the settings of one site: a partition, an account, more options for sbatch.

    ``database_s`` and ``accounts_s`` limit the wait for the database in a listing and in a history.
    """

    def __init__(
        self, settings: BatchSettings, *, database_s: int = DATABASE_S, accounts_s: int = ACCOUNTS_S
    ) -> None:
        self._settings = settings
        self._database_s = database_s
        self._accounts_s = accounts_s

    # ------------------------------------------------------------------------------------------------- jobs

    def submit(self, submission: BatchSubmission) -> str:
        """See ``BatchSystem.submit``."""
        launch, settings = submission.launch, self._settings
        per_task = launch.application.processors_per_task
        if launch.processors % per_task:
            per_task = 1
        words = [
            "sbatch",
            "--parsable",
            "--no-requeue",
            "--open-mode=append",
            f"--job-name={JOB_NAME_PREFIX}{launch.token}",
            f"--comment={launch.token}",
            f"--chdir={submission.home}",
            f"--output={_literal(f'{submission.home}/{submission.log}')}",
            f"--ntasks={launch.processors // per_task}",
            f"--cpus-per-task={per_task}",
        ]
        if submission.limit_s is not None:
            words.append(f"--time={math.ceil(submission.limit_s / 60)}")
        queue = settings.queue_for(launch.application.partition)
        if queue is not None:
            words.append(f"--partition={queue}")
        if settings.account is not None:
            words.append(f"--account={settings.account}")
        if submission.reservation is not None:
            words.append(f"--reservation={submission.reservation}")
        if launch.exclude_nodes:
            words.append(f"--exclude={','.join(launch.exclude_nodes)}")
        if launch.licenses:
            words.append(f"--licenses={','.join(f'{name}:{count}' for name, count in launch.licenses)}")
        script = f"{submission.home}/{submission.script}"
        return f"{quoted([*words, *settings.submit_options, *_needs(launch.shape), script])} </dev/null\n"

    def parse_submitted(self, printed: str) -> BatchId:
        """Return the number that ``--parsable`` prints; a ';' and the cluster may follow it. The output of a site's
        own wrapper around sbatch precedes it."""
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        number = lines[-1].split(";")[0] if lines else ""
        if not (number.isascii() and number.isdigit()):
            raise BatchOutputError(f"{printed[:200]!r} is not the number of a job")
        return number

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """See ``BatchSystem.refusal``. An sbatch that a signal ended has given no answer, whatever the shell
        prints."""
        said = complaint.strip() or printed.strip()
        if code == 0 or code > _SIGNALLED or not said or any(words in said.lower() for words in _TRANSIENT):
            return None
        return None if self.has_no_room(code, printed, complaint) else f"Slurm refused it: {said}"

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        """See ``BatchSystem.has_no_room``."""
        del code
        said = complaint.strip() or printed.strip()
        if _POLICY in said and _TOO_MANY_WAIT in said:
            return True
        return any(words in said.lower() for words in _TOO_MANY)

    def is_for_what_it_asks(self, refusal: str) -> bool:
        """See ``BatchSystem.is_for_what_it_asks``."""
        return _ASKS_TOO_MUCH.search(refusal) is not None

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """Return a script that cancels by name alone: a number may belong to another job by now."""
        del ids
        return f'scancel --user="$(id -un)" --name={shlex.quote(JOB_NAME_PREFIX + token)}\n'

    # ------------------------------------------------------------------------------------ listing and history

    def listing(self) -> str:
        """Return a script that lists nodes, all waiting jobs, this user's limits if there are any, resources of nodes
        besides processors where they matter, and this user's jobs."""
        return listing_script(self._settings, database_s=self._database_s)

    def parse_listing(self, printed: str) -> BatchListing:
        """See ``BatchSystem.parse_listing``."""
        return parse_listing(printed, self._settings.queue, terms_of(self._settings), requested_by(self._settings))

    def history(self, jobs: Sequence[BatchJob]) -> str:
        """See ``BatchSystem.history``."""
        numbers = [job.id for job in jobs]
        values = assign(koala_accounts_s=self._accounts_s)
        return f"{values}{_file('commands.sh')}{_file('history.sh')}{call('koala_history', *numbers)}"

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        """See ``BatchSystem.parse_history``."""
        return parse_history(printed, jobs)

    # ------------------------------------------------------------------------------- nodes and reservations

    def on_node(self) -> str:
        """See ``BatchSystem.on_node``."""
        return _file("nodes.sh")

    def reserve(self, wanted: WantedReservation) -> str:
        """Return a script that reserves processors from a given time on. A time that has passed becomes now."""
        words = [f"Duration={math.ceil(wanted.length_s / 60)}", f"TRES=cpu={wanted.processors}"]
        if self._settings.queue is not None:
            words.append(f"PartitionName={self._settings.queue}")
        ending = " ".join(JOB_NAME_PREFIX + token for token in wanted.ending)
        times = (math.ceil(wanted.begin_s), math.floor(wanted.late_s))
        return _file("reservation.sh") + call("koala_reserve", wanted.name, *times, ending, *words)

    def parse_reserved(self, printed: str) -> str:
        """See ``BatchSystem.parse_reserved``."""
        words = printed.split()
        if len(words) != 1:
            raise BatchOutputError(f"{printed[:200]!r} is not a reservation")
        return words[0]

    def unreserve(self, name: str) -> str:
        """See ``BatchSystem.unreserve``."""
        return _file("reservation.sh") + call("koala_unreserve", name)

    def loads(self) -> str:
        """See ``BatchSystem.loads``."""
        partition = [] if self._settings.queue is None else ["-p", self._settings.queue]
        return f"{quoted(['sinfo', '-h', '-N', '-o', '%N|%C|%O', *partition])}\n"

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        """Parse a line for each partition of a node: name, processors by state such as ``4/4/0/8``, load."""
        nodes = {}
        for line in printed.splitlines():
            try:
                name, counts, load = line.strip().split("|")
                allocated, idle, _, _ = (int(each) for each in counts.split("/"))
            except ValueError:
                raise BatchOutputError(f"{line[:200]!r} tells of no node") from None
            if allocated + idle > 0 and load.replace(".", "", 1).isdecimal():
                nodes[name] = NodeLoad(allocated + idle, allocated, float(load))
        return list(nodes.values())

    def version(self) -> str:
        """See ``BatchSystem.version``."""
        return "sinfo --version\n"
