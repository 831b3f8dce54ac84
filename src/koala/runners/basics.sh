# shellcheck shell=sh
# The script of a component: identity, files, waiting and the application.
#
# It is plain POSIX sh (dash and busybox run it) and uses only files in the component's directory, so that it works
# wherever a batch system can run a script. A head of quoted assignments describes this component; then come this file,
# nodes.sh, beside.sh, traffic.sh, usage.sh, mpi.sh, torchrun.sh, container.sh, checkpoint.sh and main.sh. Variables
# that end in _tenths are times in tenths of a second.
# shellcheck disable=SC2154,SC2034  # other parts of the script set and read them

set -u
koala_umask=$(umask)
umask 077
koala_mpiexec=
koala_group=
koala_ranks=
koala_interrupted=
koala_counting_process=
koala_components=
koala_child=
koala_must_end=
koala_ending=

# The name of this node.
koala_host=
if [ -r /proc/sys/kernel/hostname ]; then
    read -r koala_host </proc/sys/kernel/hostname
fi
: "${koala_host:=$(uname -n)}"

# Write a file as a whole or not at all. Nodes and addresses need no such care: nobody reads them before the component
# is ready, or has ended.
koala_put() {
    case $1 in
    nodes | addresses)
        { printf '%s\n' "$2" >"$koala_home/$1"; } 2>/dev/null
        return
        ;;
    esac
    { printf '%s\n' "$2" >"$koala_home/.${1##*/}.new"; } 2>/dev/null &&
        mv -f "$koala_home/.${1##*/}.new" "$koala_home/$1" 2>/dev/null
}

# Write a file, and retry while there is no space or no permission, for this many tenths of a second, or until the
# component is aborted or its directory is gone.
koala_keep() {
    if koala_put "$1" "$2"; then
        return 0
    fi
    printf 'koala: %s cannot be written in %s: is the disk full, or read-only? It is tried again.\n' \
        "$1" "$koala_home" >&2
    koala_begin_waiting
    while [ "$koala_waited" -lt "$3" ] && [ ! -e "$koala_home/abort" ] && [ -d "$koala_home" ]; do
        koala_pause
        # The application may have removed the permission to write.
        chmod u+rwx "$koala_home" 2>/dev/null
        if koala_put "$1" "$2"; then
            return 0
        fi
    done
    return 1
}

# End the component with a word that describes how. The word that its application has ended waits for space as long as
# necessary: nobody may run again what has succeeded.
koala_finish() {
    trap '' TERM INT HUP
    koala_end_group
    case $1 in
    exited*) koala_patience=$koala_for_ever_tenths ;;
    *) koala_patience=$koala_write_tenths ;;
    esac
    # A part of the script that noticed an abort has reported it already.
    if [ ! -e "$koala_home/exit" ] && ! koala_keep exit "$1" "$koala_patience"; then
        exit "$koala_exit_unwritten"
    fi
    exit 0
}

# Give up the processors: the directory cannot be written, so nobody would learn of this component.
koala_unwritten() {
    printf 'koala: it gives up, because its directory %s cannot be written\n' "$koala_home" >&2
    rm -f "$koala_home/nodes" "$koala_home/addresses" 2>/dev/null # may be cut short
    koala_put exit unwritten
    exit "$koala_exit_unwritten"
}

# A process id alone may be reused: its start time and the boot make it unique where /proc provides them.
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

# Linking fails if the name is taken: of several starts of one token exactly one continues.
koala_be_first() {
    if ! koala_identity >".pid.$$"; then
        rm -f ".pid.$$"
        exit "$koala_exit_unwritten"
    fi
    if ! ln ".pid.$$" pid 2>/dev/null; then
        rm -f ".pid.$$"
        if [ ! -e pid ]; then
            exit "$koala_exit_unwritten"
        fi
        exit "$koala_exit_not_first"
    fi
    rm -f ".pid.$$"
}

koala_begin_waiting() {
    koala_waited=0
    koala_pause_s=0.1
}

koala_pause() {
    koala_slept=1
    if [ "$koala_pause_s" = 0.1 ]; then
        sleep 0.1 2>/dev/null
        koala_slept=$?
    fi
    # A signal may have cut it short.
    if [ "$koala_slept" -eq 0 ] || [ "$koala_slept" -gt 128 ]; then
        koala_waited=$((koala_waited + 1))
    else
        # Either it has waited long, or this sleep only accepts whole seconds.
        koala_pause_s=1
        sleep 1
        koala_waited=$((koala_waited + 10))
    fi
    if [ "$koala_waited" -ge "$koala_barrier_brisk_tenths" ]; then
        koala_pause_s=1
    fi
}

# Wait until a file exists; an abort or the barrier's limit ends the component instead.
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

# Put the value of one variable of go into koala_value.
koala_go_value() {
    koala_value=
    while IFS= read -r koala_line; do
        case $koala_line in
        "$1"=*) koala_value=${koala_line#*=} ;;
        esac
    done <"$koala_home/go"
}

# Every line of go is a variable, which is passed on unchanged and never evaluated. Arguments are further variables,
# which take precedence.
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
    if [ -n "$koala_checkpoint" ]; then
        set -- "$@" "KOALA_CHECKPOINT=$koala_home/workspace/$koala_checkpoint" \
            "KOALA_CHECKPOINT_ASKED=$koala_home/asked"
    fi
    koala_program "$@" "KOALA_HOME=$koala_home"
}
