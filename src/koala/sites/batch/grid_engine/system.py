"""Grid Engine (SGE, Son of Grid Engine, Univa and Altair) as a batch system: the texts for ``sh``.

What ``qstat`` prints is read in ``grid_engine_listing``, what ``qacct`` prints in ``grid_engine_history``. All
components run in the parallel environment of the settings. Without one there, those of more than one processor take
the first that the queue offers and that lets a job start processes on its other nodes, or else the first it offers.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from koala.model.grid import BatchSettings
from koala.model.messages import Token
from koala.sites.batch.grid_engine.history import history_text, read_history
from koala.sites.batch.grid_engine.listing import ListingReader, listing_text
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchSubmission,
)

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
_NO_QUEUE = re.compile(r"no suitable queues", re.IGNORECASE)
_GRANTED = re.compile(r"advance reservation (\d+) has been granted", re.IGNORECASE)

# Prints the name of a parallel environment. The words that choose queue and user follow it.
_CHOOSE_ENVIRONMENT = r"""koala_environment() {
    koala_spare=
    koala_all=$(qconf -spl) || return 1
    for koala_each in $koala_all; do
        if [ -z "$(qselect -pe "$koala_each" "$@")" ]; then
            continue
        fi
        if qconf -sp "$koala_each" | grep '^control_slaves  *TRUE' >/dev/null; then
            printf '%s\n' "$koala_each"
            return 0
        fi
        : "${koala_spare:=$koala_each}"
    done
    if [ -z "$koala_spare" ]; then
        echo 'koala: no parallel environment is offered for more than one processor; ask the operator for one' >&2
        return 1
    fi
    printf '%s\n' "$koala_spare"
}
"""

# The arguments are jobs' names. Exits with 0 when none of them is there any more.
_DELETE = r"""koala_delete() {
    koala_said=$("$@" 2>&1) && return 0
    koala_said=$(printf '%s\n' "$koala_said" |
        grep -v -e 'does not exist' -e 'has registered' -e 'has deleted' -e 'already in deletion')
    if [ -z "$koala_said" ]; then
        return 0
    fi
    printf '%s\n' "$koala_said" >&2
    return 1
}
"""

# Prints the ids of the reservations of that name; the tags come a line each.
_FIND_RESERVATIONS = r"""koala_reservations() {
    koala_all=$(qrstat -u "$(id -un)" -xml) || return 1
    printf '%s\n' "$koala_all" | awk -v name="$1" '
        /<id>/ { id = $0; gsub(/[^0-9]/, "", id) }
        index($0, "<name>" name "</name>") { print id }'
}
"""

# Grid Engine takes a name twice: of two that were asked for at a time the first stands, and the other is given back.
# It wants the time as its qmaster's clock shows it; GNU and BSD know different words for that.
_RESERVE = r"""koala_reserve() {
    koala_name=$1
    koala_begin=$2
    shift 2
    koala_ids=$(koala_reservations "$koala_name") || return 1
    koala_first=
    for koala_id in $koala_ids; do
        if [ -n "$koala_first" ]; then koala_delete qrdel "$koala_id" || return 1; else koala_first=$koala_id; fi
    done
    if [ -n "$koala_first" ]; then
        printf '%s\n' "$koala_first"
        return 0
    fi
    if [ "$koala_begin" -gt "$(date +%s)" ]; then
        koala_form=+%Y%m%d%H%M.%S
        koala_begin=$(date -d "@$koala_begin" "$koala_form" 2>/dev/null || date -r "$koala_begin" "$koala_form")
        set -- -a "$koala_begin" "$@"
    fi
    qrsub -N "$koala_name" -u "$(id -un)" "$@"
}
"""

_ON_NODE = r"""
# A host may stand there once for each of its queues; the one that the script runs on comes first.
koala_nodes() {
    if [ -r "${PE_HOSTFILE-}" ]; then
        awk -v own="${HOSTNAME-}" '
            NF >= 2 { if (!($1 in slots)) order[++count] = $1; slots[$1] += $2 }
            END {
                if (own in slots) print own, slots[own]
                for (i = 1; i <= count; i++) if (order[i] != own) print order[i], slots[order[i]]
            }' "$PE_HOSTFILE"
    else
        printf '%s %s\n' "${HOSTNAME:-$(uname -n)}" "${NSLOTS:-1}"
    fi
}

# qrsh gives its arguments to another shell and drops part of the environment, so both travel in a file.
koala_on_node() {
    koala_node=$1
    shift
    if [ "$koala_node" = "${HOSTNAME-}" ] || [ ! -r "${PE_HOSTFILE-}" ]; then
        exec "$@"
    fi
    koala_order=$(mktemp "${koala_home:-${KOALA_HOME:-$(pwd -P)}}/.order.XXXXXX") || exit 74
    {
        # These belong to the other node.
        # shellcheck disable=SC2016  # for the other node's shell to expand
        echo 'koala_own="${TMPDIR-/tmp} ${HOSTNAME-}"'
        export -p
        # shellcheck disable=SC2016
        echo 'TMPDIR=${koala_own%% *} TMP=$TMPDIR HOSTNAME=${koala_own#* }'
        printf 'cd %s || exit 126\nexec' "$(koala_quoted "$(pwd -P)")"
        for koala_word in "$@"; do
            printf ' %s' "$(koala_quoted "$koala_word")"
        done
        echo
    } >"$koala_order" || exit 74
    koala_qrsh=$(command -v qrsh || echo "${SGE_BINARY_PATH:-$SGE_ROOT/bin/${ARC-}}/qrsh")
    exec "$koala_qrsh" -inherit -nostdin "$koala_node" /bin/sh "$(koala_quoted "$koala_order")"
}

# A word as sh reads it back; the x keeps newlines at its end.
koala_quoted() {
    koala_text=$(printf '%sx' "$1" | sed "s/'/'\\\\''/g")
    printf "'%s'" "${koala_text%x}"
}
"""


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
        if settings.queue is not None:
            words += ["-q", settings.queue]
        if settings.account is not None:
            words += ["-P", settings.account]
        if submission.reservation is not None:
            words += ["-ar", submission.reservation]
        elif submission.limit_s is not None:
            words += ["-l", f"h_rt={math.ceil(submission.limit_s)}"]
        preface, environment = self._environment(launch.processors)
        options = shlex.join(settings.submit_options)
        script = shlex.quote(_below(submission.home, submission.script))
        return preface + " ".join(part for part in (shlex.join(words), environment, options, script) if part) + "\n"

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
        """No queue has what the job asks for."""
        return _NO_QUEUE.search(refusal) is not None

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """By the name alone, which all of a token's jobs have: an id may belong to another job by now."""
        return _DELETE + f"koala_delete qdel {shlex.quote(JOB_NAME_PREFIX + token)}\n"

    def listing(self) -> str:
        return listing_text(self._settings)

    def parse_listing(self, printed: str) -> BatchListing:
        return ListingReader(self._settings).read(printed)

    def history(self, jobs: Sequence[BatchJob]) -> str:
        return history_text(jobs)

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        return read_history(printed, jobs)

    def on_node(self) -> str:
        return _ON_NODE

    def reserve(self, name: str, processors: int, begin_s: float, length_s: float) -> str:
        """From now on if the time has come already; an operator allows it by the user list ``arusers``."""
        preface, environment = self._environment(processors)
        words = ["koala_reserve", name, str(math.ceil(begin_s)), "-d", str(max(1, math.ceil(length_s)))]
        if self._settings.queue is not None:
            words += ["-q", self._settings.queue]
        functions = _FIND_RESERVATIONS + _DELETE + _RESERVE
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
        """A job that still runs in it ends, too. Who may not reserve is denied even where there is nothing to delete,
        so that it is looked for first."""
        word = shlex.quote(name)
        return (
            f"{_FIND_RESERVATIONS}{_DELETE}koala_ids=$(koala_reservations {word}) || exit 1\n"
            f'if [ -n "$koala_ids" ]; then koala_delete qrdel {word}; fi\n'
        )

    def version(self) -> str:
        return "koala_said=$(qstat -help) && printf 'Grid Engine: %s\\n' \"$koala_said\" | sed -n 1p\n"

    def _environment(self, processors: int) -> tuple[str, str]:
        """What comes before a command, and its words for the parallel environment."""
        name = self._settings.parallel_environment
        if name is not None:
            return "", f"-pe {shlex.quote(name)} {processors}"
        if processors == 1:
            return "", ""
        queue = [] if self._settings.queue is None else ["-q", self._settings.queue]
        choose = " ".join(["koala_environment", '-U "$(id -un)"', shlex.join(queue)]).rstrip()
        return _CHOOSE_ENVIRONMENT + f"koala_chosen=$({choose}) &&\n", f'-pe "$koala_chosen" {processors}'


def _below(home: str, path: str) -> str:
    return path if path.startswith("/") else f"{home}/{path}"


def _shortened(text: str) -> str:
    """One line of it, for a reason."""
    words = " ".join(text.split()).removesuffix(" Exiting.")
    return words if len(words) <= REASON_CHARACTERS_MAX else words[: REASON_CHARACTERS_MAX - 1] + "…"
