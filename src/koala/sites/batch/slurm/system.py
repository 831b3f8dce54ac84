"""Slurm: texts that use its commands. What these print is read in ``koala.sites.batch.slurm.listing``,
``slurm_quota`` and ``slurm_history``.

Only options that all versions since 17 know. A job is found by its user and name alone, so that a number that was
given again, or an answer that never came, confuses nobody.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from koala.model.grid import BatchSettings
from koala.model.messages import Token
from koala.sites.batch.slurm import history as slurm_history
from koala.sites.batch.slurm import listing as slurm_listing
from koala.sites.batch.slurm.history import SACCT_FIELDS, SACCT_LINE
from koala.sites.batch.slurm.listing import (
    JOB_FORMAT,
    JOBS_LINE,
    NODES_LINE,
    PLAIN_TEXT,
    QUOTA_LINE,
    ROOM_LINE,
    WAITING_FORMAT,
    WAITING_LINE,
)
from koala.sites.batch.slurm.needs_text import needs_text, nodes_command
from koala.sites.batch.slurm.options import asked_of
from koala.sites.batch.slurm.quota_text import at_most, quota_text, terms_of
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchSubmission,
)
from koala.sites.shell_script import quoted

# How long the accounts of jobs that the controller has forgotten are waited for.
ACCOUNTS_S = 20

# What sbatch says when trying again may help; everything else that it says is its last word.
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
    "not found",  # sbatch itself, for one
)

# What it says when there are too many jobs, in the cluster or of ours.
_TOO_MANY = ("maximum number of jobs", "temporarily unable to accept job")
# A limit on how many jobs wait passes; one on the size or the time of a job, told in the same words, does not.
_POLICY = "Job violates accounting/QOS policy"
_TOO_MANY_WAIT = "SubmitJob"
# What is said of a job that asks for more than any may have; the rest is said of accounts, partitions and options,
# and would be said of other jobs too.
_ASKS_TOO_MUCH = re.compile(
    rf"{_POLICY}|time limit is invalid|node configuration is not available|more processors requested than permitted|"
    r"node count specification invalid|memory (required by task|specification)",
    re.IGNORECASE,
)

# The functions for a component's script. How many processors a node has is told as 4(x2),3.
_ON_NODE = r"""
koala_nodes() {
    koala_counts=
    koala_rest=$SLURM_TASKS_PER_NODE,
    while [ -n "$koala_rest" ]; do
        koala_one=${koala_rest%%,*}
        koala_rest=${koala_rest#*,}
        koala_times=1
        case $koala_one in
        *"(x"*)
            koala_times=${koala_one#*x}
            koala_times=${koala_times%?}
            ;;
        esac
        while [ "$koala_times" -gt 0 ]; do
            koala_counts="$koala_counts ${koala_one%%(*}"
            koala_times=$((koala_times - 1))
        done
    done
    # shellcheck disable=SC2086  # the numbers are to be split
    set -- $koala_counts
    scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r koala_node; do
        printf '%s %s\n' "$koala_node" "$(($1 * ${SLURM_CPUS_PER_TASK:-1}))"
        shift
    done
}
koala_on_node() {
    koala_node=$1
    shift
    # As variables, since older versions of srun do not know them as options.
    SLURM_OVERLAP=1 SLURM_MPI_TYPE=none SLURM_CPU_BIND=none SLURM_EXPORT_ENV=ALL
    export SLURM_OVERLAP SLURM_MPI_TYPE SLURM_CPU_BIND SLURM_EXPORT_ENV
    koala_share=$(koala_nodes | while read -r koala_name koala_number; do
        if [ "$koala_name" = "$koala_node" ]; then echo "$koala_number"; fi
    done)
    exec srun --nodes=1 --ntasks=1 --cpus-per-task="${koala_share:-1}" --nodelist="$koala_node" \
        --kill-on-bad-exit=0 --wait=0 "$@"
}
"""


def _literal(path: str) -> str:
    """A path for ``--output``, in which Slurm replaces what stands behind a '%'."""
    return path.replace("%", "%%")


class SlurmSystem:
    """Slurm with the settings of one site: a partition, an account, more options for sbatch."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings

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
        if settings.queue is not None:
            words.append(f"--partition={settings.queue}")
        if settings.account is not None:
            words.append(f"--account={settings.account}")
        if submission.reservation is not None:
            words.append(f"--reservation={submission.reservation}")
        script = f"{submission.home}/{submission.script}"
        return f"{quoted([*words, *settings.submit_options, script])} </dev/null\n"

    def parse_submitted(self, printed: str) -> BatchId:
        """``--parsable`` prints the number, and behind a ';' the cluster. What a site's own wrapper around sbatch
        says stands in front."""
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        number = lines[-1].split(";")[0] if lines else ""
        if not (number.isascii() and number.isdigit()):
            raise BatchOutputError(f"{printed[:200]!r} is not the number of a job")
        return number

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """See ``BatchSystem.refusal``."""
        said = complaint.strip() or printed.strip()
        if code == 0 or not said or any(words in said.lower() for words in _TRANSIENT):
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
        """By name alone: a number may be another job's by now."""
        del ids
        return f'scancel --user="$(id -un)" --name={shlex.quote(JOB_NAME_PREFIX + token)}\n'

    # ---------------------------------------------------------------------------------------------- looking

    def listing(self) -> str:
        """Nodes, everybody's jobs that wait, this user's limits where there are any, what nodes have beside
        processors where that matters, and this user's jobs. Of the others' that run, the nodes tell enough."""
        where = [] if self._settings.queue is None else [f"--partition={self._settings.queue}"]
        jobs = quoted(["squeue", "--noheader", "--all", "--states=all", f"--format={JOB_FORMAT}"])
        waiting = quoted(["squeue", "--noheader", "--states=PENDING", f"--format={WAITING_FORMAT}", *where])
        return (
            f"{PLAIN_TEXT}koala_user=$(id -un) &&\n"
            f"echo {shlex.quote(NODES_LINE)} && {nodes_command(self._settings)} &&\n"
            f"echo {shlex.quote(WAITING_LINE)} && {waiting} &&\n"
            f'koala_jobs=$({jobs} --user="$koala_user") || exit\n'
            f"echo {shlex.quote(QUOTA_LINE)}\n{quota_text(self._settings)}"
            f"echo {shlex.quote(ROOM_LINE)}\n{needs_text(self._settings)}"
            f"printf '%s\\n%s\\n' {shlex.quote(JOBS_LINE)} \"$koala_jobs\"\n"
        )

    def parse_listing(self, printed: str) -> BatchListing:
        """See ``BatchSystem.parse_listing``."""
        settings = self._settings
        return slurm_listing.parse_listing(printed, settings.queue, terms_of(settings), asked_of(settings))

    def history(self, jobs: Sequence[BatchJob]) -> str:
        """The controller as long as it remembers them, then its accounting where there is one. What the controller
        does not know holds nothing any more, so that accounts that cannot be read are no reason to wait."""
        numbers = [job.id for job in jobs]
        shown = "\n".join(
            f"koala_said=$(scontrol show job -o {shlex.quote(number)} 2>&1) && printf '%s\\n' \"$koala_said\" ||\n"
            '    case $koala_said in *"nvalid job id"*) ;; *) printf \'%s\\n\' "$koala_said" >&2; exit 1 ;; esac'
            for number in numbers
        )
        accounted = quoted(
            ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--format={SACCT_FIELDS}"]
        )
        return (
            f"{PLAIN_TEXT}{shown}\necho {shlex.quote(SACCT_LINE)}\n"
            f"{at_most(ACCOUNTS_S, accounted)} --jobs={','.join(numbers)} 2>/dev/null || :\n"
        )

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        """See ``BatchSystem.parse_history``."""
        return slurm_history.parse_history(printed, jobs)

    # ------------------------------------------------------------------------------- nodes and reservations

    def on_node(self) -> str:
        """See ``BatchSystem.on_node``."""
        return _ON_NODE

    def reserve(self, name: str, processors: int, begin_s: float, length_s: float) -> str:
        """Asks for processors from a time on. A time that has passed is now."""
        words = [
            "scontrol",
            "create",
            "reservation",
            f"ReservationName={name}",
            f"Duration={math.ceil(length_s / 60)}",
            f"TRES=cpu={processors}",
        ]
        if self._settings.queue is not None:
            words.append(f"PartitionName={self._settings.queue}")
        return (
            f"if ! scontrol show reservation {shlex.quote(name)} >/dev/null 2>&1; then\n"
            f"    koala_ahead=$(({math.ceil(begin_s)} - $(date +%s)))\n"
            '    if [ "$koala_ahead" -lt 1 ]; then koala_ahead=1; fi\n'
            f'    {quoted(words)} Users="$(id -un)" StartTime="now+$koala_ahead" >/dev/null || exit 1\n'
            f"fi\necho {shlex.quote(name)}\n"
        )

    def parse_reserved(self, printed: str) -> str:
        """See ``BatchSystem.parse_reserved``."""
        words = printed.split()
        if len(words) != 1:
            raise BatchOutputError(f"{printed[:200]!r} is not a reservation")
        return words[0]

    def unreserve(self, name: str) -> str:
        """A reservation whose job is still being cleaned up is in use, so it is asked for twice. Who may not reserve
        is told so even where there is nothing to delete."""
        word = shlex.quote(f"ReservationName={name}")
        return (
            "koala_tries=0\n"
            f"while koala_said=$(scontrol show reservation {shlex.quote(name)} 2>&1); do\n"
            f"    if koala_said=$(scontrol delete {word} 2>&1); then exit 0; fi\n"
            '    if [ "$koala_tries" -gt 0 ]; then break; fi\n'
            "    koala_tries=1\n    sleep 1\ndone\n"
            'case $koala_said in *"not found"*) exit 0 ;; esac\n'
            "printf '%s\\n' \"$koala_said\" >&2\nexit 1\n"
        )

    def version(self) -> str:
        """See ``BatchSystem.version``."""
        return "sinfo --version\n"
