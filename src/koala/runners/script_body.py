"""The part of a component's script that is the same for all: identity, barrier, application.

It is plain POSIX sh (dash and busybox run it) and uses only files in the component's directory, so that it works
wherever a batch system can run a script. No text of a user is in it; file names are those of ``koala.model.launch``.
Nodes are in ``koala.runners.script_nodes``, what the runners add in ``script_mpi`` and ``script_torchrun``.
"""

from __future__ import annotations

from koala.runners.script_mpi import MPI_BODY
from koala.runners.script_nodes import NODES_BODY
from koala.runners.script_torchrun import TORCHRUN_BODY

# The barrier is looked at every 0.1 s for so long, then every second: nobody can be in a hurry any more.
BARRIER_BRISK_TENTHS = 300
# The script's exit code when another start of the same token was first.
EXIT_NOT_FIRST = 75

_BASICS = r"""
set -u
koala_umask=$(umask)
umask 077
koala_mpiexec=
koala_crew=
koala_ranks=
koala_interrupted=

# A file appears whole or not at all.
koala_put() {
    printf '%s\n' "$2" >"$koala_home/.$1.new" && mv -f "$koala_home/.$1.new" "$koala_home/$1"
}

koala_finish() {
    trap '' TERM INT HUP
    koala_end_crew
    # A part of the script that saw an abort has already said so.
    if [ ! -e "$koala_home/exit" ]; then
        koala_put exit "$1"
    fi
    exit 0
}

# A process id alone may be reused: its start time and the boot make it unique where /proc tells them.
koala_identity() {
    koala_started=-
    koala_boot=-
    if [ -r "/proc/$$/stat" ]; then
        read -r koala_stat <"/proc/$$/stat"
        set -f
        # shellcheck disable=SC2086  # the fields are to be split
        set -- ${koala_stat##*) }
        set +f
        shift 19
        koala_started=$1
    fi
    if [ -r /proc/sys/kernel/random/boot_id ]; then
        read -r koala_boot </proc/sys/kernel/random/boot_id
    fi
    printf '%s %s %s\n' "$$" "$koala_started" "$koala_boot"
}

# Linking fails if the name is taken: of several starts of one token exactly one goes on.
koala_claim() {
    koala_identity >".pid.$$" || exit 74
    if ! ln ".pid.$$" pid 2>/dev/null; then
        rm -f ".pid.$$"
        exit @EXIT_NOT_FIRST@
    fi
    rm -f ".pid.$$"
}

koala_begin_waiting() {
    koala_waited=0
    koala_nap=0.1
}

koala_pause() {
    koala_slept=1
    if [ "$koala_nap" = 0.1 ]; then
        sleep 0.1 2>/dev/null
        koala_slept=$?
    fi
    # A signal may have cut it short.
    if [ "$koala_slept" -eq 0 ] || [ "$koala_slept" -gt 128 ]; then
        koala_waited=$((koala_waited + 1))
    else
        # Either it has waited long or this sleep knows only whole seconds.
        koala_nap=1
        sleep 1
        koala_waited=$((koala_waited + 10))
    fi
    if [ "$koala_waited" -ge @BARRIER_BRISK_TENTHS@ ]; then
        koala_nap=1
    fi
}

# Wait until a file is there; an abort or the barrier's limit ends the component instead.
koala_wait_for() {
    koala_begin_waiting
    while :; do
        if [ -e "$koala_home/abort" ]; then
            koala_finish aborted
        fi
        if [ -e "$koala_home/$1" ]; then
            return 0
        fi
        if [ "$koala_waited" -ge "$koala_barrier_tenths" ]; then
            koala_finish gave-up
        fi
        if [ -n "${2-}" ] && ! kill -0 "$2" 2>/dev/null; then
            return 1
        fi
        koala_pause
    done
}

# The value of one variable of go.
koala_told() {
    while IFS= read -r koala_line; do
        case $koala_line in
        "$1"=*) printf '%s\n' "${koala_line#*=}" ;;
        esac
    done <"$koala_home/go"
}

# Every line of go is a variable; they are passed on as they stand and nothing evaluates them. Arguments are more
# variables, which win.
koala_run() {
    koala_more=$#
    while IFS= read -r koala_line; do
        set -- "$@" "$koala_line"
    done <"$koala_home/go"
    while [ "$koala_more" -gt 0 ]; do
        set -- "$@" "$1"
        shift
        koala_more=$((koala_more - 1))
    done
    koala_program "$@" "KOALA_HOME=$koala_home"
}
"""

_MAIN = r"""
koala_application() {
    exec 2>"$koala_home/stderr"
    umask "$koala_umask"
    koala_enter || exit 126
    koala_open_streams
    case $koala_job_type in
    mpi) koala_mpi ;;
    torchrun) koala_torchrun ;;
    *) koala_run ;;
    esac
}

# What runs on any of the nodes.
case ${1-} in
rank)
    koala_home=$KOALA_HOME
    koala_rank
    ;;
proxy)
    koala_home=$KOALA_HOME
    shift
    koala_proxy "$@"
    ;;
worker)
    koala_home=$KOALA_HOME
    koala_worker "$2" "$3"
    ;;
esac

koala_home=$(pwd -P)
koala_claim
trap 'koala_finish killed' TERM INT HUP
mkdir -p workspace inbox outbox
if ! { koala_text >job-script && chmod 700 job-script; }; then
    koala_finish 'exited 126'
fi
if [ -e site ]; then
    # shellcheck source=/dev/null
    . "$koala_home/site"
fi
if ! koala_tell_nodes; then
    echo 'koala: the site does not tell which nodes this component has' >&2
    koala_finish no-nodes
fi
koala_put ready "$(uname -n)"
koala_wait_for go
# From here on a signal is for the application; the script stays to record how it ended.
trap : TERM INT HUP
(koala_application)
koala_finish "exited $?"
"""

BODY = (
    (_BASICS + NODES_BODY + MPI_BODY + TORCHRUN_BODY + _MAIN)
    .replace("@EXIT_NOT_FIRST@", str(EXIT_NOT_FIRST))
    .replace("@BARRIER_BRISK_TENTHS@", str(BARRIER_BRISK_TENTHS))
)
