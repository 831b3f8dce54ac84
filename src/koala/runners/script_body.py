"""The part of a component's script that is the same for all: identity, barrier, application, MPI.

It is plain POSIX sh (dash and busybox run it) and uses only files in the component's directory, so that it works
wherever a batch system can run a script. No text of a user is in it; file names are those of ``koala.launching``.
"""

from __future__ import annotations

# The barrier is looked at every 0.1 s for so long, then every second: nobody can be in a hurry any more.
BARRIER_BRISK_TENTHS = 300
# How long mpiexec may outlive a rank that ended without MPI_Finalize: it would wait for ever.
MPIEXEC_GRACE_TENTHS = 50
# How long a component whose ranks were cut off waits to hear that the job is over.
VERDICT_TENTHS = 100
# The script's exit code when another start of the same token was first.
EXIT_NOT_FIRST = 75

_BASICS = r"""
set -u
koala_umask=$(umask)
umask 077
koala_mpiexec=

# A file appears whole or not at all.
koala_put() {
    printf '%s\n' "$2" >"$koala_home/.$1.new" && mv -f "$koala_home/.$1.new" "$koala_home/$1"
}

koala_finish() {
    trap '' TERM INT HUP
    if [ -n "$koala_mpiexec" ]; then
        kill -KILL "$koala_mpiexec" 2>/dev/null
    fi
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

koala_nap=0.1
koala_pause() {
    if [ "$koala_nap" = 0.1 ] && sleep 0.1 2>/dev/null; then
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
    koala_waited=0
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

# Every line of go is a variable; they are passed on as they stand and nothing evaluates them.
koala_run() {
    set --
    while IFS= read -r koala_line; do
        set -- "$@" "$koala_line"
    done <"$koala_home/go"
    koala_program "$@" "KOALA_HOME=$koala_home"
}
"""

_MPI = r"""
# The value of one variable of go.
koala_told() {
    while IFS= read -r koala_line; do
        case $koala_line in
        "$1"=*) printf '%s\n' "${koala_line#*=}" ;;
        esac
    done <"$koala_home/go"
}

# What mpiexec prints: first the proxies, for the driver; then the application's output.
koala_sort_output() {
    while IFS= read -r koala_line; do
        case $koala_line in
        HYDRA_LAUNCH:*) printf '%s\n' "$koala_line" >>"$koala_home/.proxies.new" ;;
        HYDRA_LAUNCH_END*)
            printf '%s\n' "$koala_line" >>"$koala_home/.proxies.new"
            mv -f "$koala_home/.proxies.new" "$koala_home/outbox/proxies"
            exec cat
            ;;
        *) printf '%s\n' "$koala_line" ;;
        esac
    done
}

koala_start_mpiexec() {
    mkfifo "$koala_home/.mpiexec-output" || exit 74
    exec 4<&0
    # Each component's own script starts its ranks, so mpiexec needs to know nothing of the application.
    # shellcheck disable=SC2016  # for the rank's shell to expand
    mpiexec -rmk user -launcher manual -genvnone -wdir / -localhost "$(koala_told KOALA_MPI_ADDRESS)" \
        -hosts "$(koala_told KOALA_MPI_HOSTS)" -n "$(koala_told KOALA_MPI_RANKS)" \
        /bin/sh -c 'exec /bin/sh "$KOALA_HOME/script" rank' <&4 4<&- >"$koala_home/.mpiexec-output" &
    koala_mpiexec=$!
    exec 4<&-
    # mpiexec does not listen to SIGTERM.
    trap 'kill -KILL "$koala_mpiexec" 2>/dev/null' TERM INT HUP
    koala_sort_output <"$koala_home/.mpiexec-output" &
    koala_sorter=$!
}

koala_run_proxy() {
    set --
    while IFS= read -r koala_line; do
        set -- "$@" "$koala_line"
    done <"$koala_home/inbox/proxy"
    if [ ! -x "$1" ]; then
        # MPICH lives elsewhere on this site.
        shift
        set -- hydra_pmi_proxy "$@"
    fi
    "$@" </dev/null >>"$koala_home/log" 2>&1
}

# The exit code of a rank that mpiexec may never learn of, or nothing.
koala_rank_code() {
    if [ -e "$koala_home/.rank-code" ]; then
        cat "$koala_home/.rank-code"
    fi
}

# mpiexec's exit code is the job's. It is ended if it waits for a rank that will not come back.
koala_await_mpiexec() {
    koala_failure=$(koala_rank_code)
    if [ -z "$koala_failure" ] && [ "$1" -ne 0 ]; then
        koala_failure=$1
    fi
    koala_waited=0
    while [ -n "$koala_failure" ] && kill -0 "$koala_mpiexec" 2>/dev/null; do
        if [ "$koala_waited" -ge @MPIEXEC_GRACE_TENTHS@ ]; then
            kill -KILL "$koala_mpiexec" 2>/dev/null
            wait "$koala_mpiexec" 2>/dev/null
            wait "$koala_sorter"
            return "$koala_failure"
        fi
        koala_pause
    done
    wait "$koala_mpiexec"
    koala_code=$?
    wait "$koala_sorter"
    return "$koala_code"
}

koala_mpi() {
    KOALA_HOME=$koala_home
    export KOALA_HOME
    if [ "$koala_part" -eq 0 ]; then
        koala_start_mpiexec
    fi
    if ! koala_wait_for inbox/proxy "$koala_mpiexec"; then
        wait "$koala_mpiexec"
        koala_code=$?
        wait "$koala_sorter"
        # It left before any rank ran, so whatever it says it has not succeeded.
        [ "$koala_code" -ne 0 ] || koala_code=1
        return "$koala_code"
    fi
    koala_run_proxy
    koala_code=$?
    if [ "$koala_part" -eq 0 ]; then
        koala_await_mpiexec "$koala_code"
        return
    fi
    koala_failure=$(koala_rank_code)
    if [ -n "$koala_failure" ]; then
        return "$koala_failure"
    fi
    # Ranks ran here and were cut off. The first component knows why; when the scheduler has heard it, it aborts us,
    # and until then we say nothing that could be taken for the cause.
    koala_waited=0
    while [ "$koala_code" -ne 0 ] && [ -e "$koala_home/.ranks-ran" ] && [ "$koala_waited" -lt @VERDICT_TENTHS@ ]; do
        if [ -e "$koala_home/abort" ]; then
            koala_finish aborted
        fi
        koala_pause
    done
    return "$koala_code"
}

# One rank: the application, and a note of a failure, which hydra forgets if the rank skipped MPI_Finalize.
koala_rank() {
    : >"$koala_home/.ranks-ran"
    umask "$koala_umask"
    koala_enter || exit 126
    (koala_run)
    koala_code=$?
    if [ "$koala_code" -gt 128 ]; then
        kill "-$((koala_code - 128))" "$$"
    elif [ "$koala_code" -ne 0 ]; then
        (set -C && printf '%s\n' "$koala_code" >"$koala_home/.rank-code") 2>/dev/null
    fi
    exit "$koala_code"
}
"""

_MAIN = r"""
koala_application() {
    exec 2>"$koala_home/stderr"
    umask "$koala_umask"
    koala_enter || exit 126
    koala_open_streams
    if [ "$koala_job_type" = mpi ]; then
        koala_mpi
    else
        koala_run
    fi
}

if [ "${1-}" = rank ]; then
    koala_home=$KOALA_HOME
    koala_rank
fi

koala_home=$(pwd -P)
koala_claim
trap 'koala_finish killed' TERM INT HUP
mkdir -p workspace inbox outbox
if ! { koala_text >job-script && chmod 700 job-script; }; then
    koala_finish 'exited 126'
fi
koala_put ready "$(uname -n)"
koala_wait_for go
# From here on a signal is for the application; the script stays to record how it ended.
trap : TERM INT HUP
(koala_application)
koala_finish "exited $?"
"""

BODY = (
    (_BASICS + _MPI + _MAIN)
    .replace("@EXIT_NOT_FIRST@", str(EXIT_NOT_FIRST))
    .replace("@BARRIER_BRISK_TENTHS@", str(BARRIER_BRISK_TENTHS))
    .replace("@VERDICT_TENTHS@", str(VERDICT_TENTHS))
    .replace("@MPIEXEC_GRACE_TENTHS@", str(MPIEXEC_GRACE_TENTHS))
)
