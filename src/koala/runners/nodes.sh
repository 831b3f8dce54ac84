# shellcheck shell=sh
# The nodes of a component, and commands that run on all of them at once.
#
# A component without the file site has one node. Commands on several nodes are a group: the first failure is noticed at
# once, and the end of the script ends them all.
# shellcheck disable=SC2154,SC2034  # other parts of the script set and read them

# The file site redefines these; a component without that file has only this node.
koala_nodes() {
    printf '%s %s\n' "$koala_host" "$koala_processors"
}

koala_on_node() {
    printf 'koala: the file site does not say how to reach node %s\n' "$1" >&2
    exit 126
}

# Record the component's nodes and addresses for its site, which passes them on.
koala_put_nodes() {
    koala_found=$(koala_nodes) || return
    if [ -z "$koala_found" ]; then
        return 1
    fi
    if ! { koala_keep nodes "$koala_found" "$koala_write_tenths" &&
        koala_keep addresses "$(hostname -I 2>/dev/null)" "$koala_write_tenths"; }; then
        koala_unwritten
    fi
}

koala_has_several_nodes() {
    { read -r koala_line && read -r koala_line; } <"$koala_home/nodes"
}

# Become a command on one of the nodes, by its index from 0; the script's own node is the first.
koala_exec_at() {
    koala_node_index=$1
    shift
    if [ "$koala_node_index" -eq 0 ]; then
        exec "$@"
    fi
    koala_on_node "$(sed -n "$((koala_node_index + 1))s/ .*//p" "$koala_home/nodes")" "$@"
}

# End the child: with SIGTERM, and after a while with SIGKILL.
koala_end_child() {
    koala_must_end=1
    if [ -z "$koala_child" ] || [ -n "$koala_ending" ]; then
        return
    fi
    koala_ending=1
    koala_signal_child TERM
    koala_begin_waiting
    while [ "$koala_waited" -lt "$koala_group_grace_tenths" ] && kill -0 "$koala_child" 2>/dev/null; do
        koala_pause
    done
    koala_signal_child KILL
}

# A child may be a proxy, which ignores signals, and whose ranks lead sessions of their own.
koala_signal_child() {
    if [ -n "$koala_ranks" ]; then
        for koala_one in "$koala_ranks"/*; do
            kill -s "$1" -- "-${koala_one##*/}" 2>/dev/null
        done
    fi
    kill -s "$1" "$koala_child" 2>/dev/null
}

# Exit with the code of a command on a node, which reads from descriptor 4 and ends with this script.
koala_with_child() {
    trap koala_end_child TERM INT HUP
    koala_exec_at "$@" <&4 4<&- 5>&- &
    koala_child=$!
    # The signal may have come before there was a child to pass it on to.
    if [ -n "$koala_must_end" ]; then
        koala_end_child
    fi
    koala_await "$koala_child"
}

# Run one command of the group: its exit code becomes a line in descriptor 5. A script that kills its own child has the
# time to do so: otherwise that child would be left. The first node's worker is the application itself.
koala_member() {
    [ "$koala_job_type $1" = 'torchrun 0' ] || koala_group_grace_tenths=$((2 * koala_group_grace_tenths))
    koala_with_child "$@"
    printf '%s\n' "$?" >&5 2>/dev/null
}

# Return the exit code of a child, even if signals come meanwhile.
koala_await() {
    while :; do
        wait "$1"
        koala_awaited=$?
        if [ "$koala_awaited" -le 128 ] || ! kill -0 "$1" 2>/dev/null; then
            return "$koala_awaited"
        fi
    done
}

# Read exit codes, and end at the first that is not 0, or after the last.
koala_first_failure() {
    while IFS= read -r koala_code; do
        if [ "$koala_code" -ne 0 ]; then
            exit "$koala_code"
        fi
    done
    exit 0
}

# Open a group until koala_await_group: koala_join_group adds commands to it, which read from descriptor 4.
koala_open_group() {
    trap koala_interrupt TERM INT HUP
    mkfifo "$koala_home/.ends" || exit 74
    koala_first_failure <"$koala_home/.ends" &
    koala_watcher=$!
    exec 5>"$koala_home/.ends"
}

koala_join_group() {
    koala_member "$@" &
    koala_group="$koala_group $!"
}

# Return the exit code of the first failed command at once, or 0 when all have ended.
koala_await_group() {
    exec 4<&- 5>&-
    if [ -n "$koala_interrupted" ]; then
        koala_interrupt
    fi
    koala_await "$koala_watcher"
    koala_code=$?
    if [ "$koala_code" -eq 0 ]; then
        koala_group=
    fi
    return "$koala_code"
}

# Let a signal end the whole group, even where it did not reach its commands; mpiexec ignores SIGTERM.
koala_interrupt() {
    koala_interrupted=1
    if [ -n "$koala_mpiexec" ]; then
        kill -KILL "$koala_mpiexec" 2>/dev/null
    fi
    for koala_one in $koala_group; do
        kill -TERM "$koala_one" 2>/dev/null
    done
}

koala_group_runs() {
    for koala_one in $koala_group; do
        if kill -0 "$koala_one" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

# End all commands of the group. A command that has just been started may lose a signal, so it is repeated every second.
koala_end_group() {
    koala_begin_waiting
    while koala_group_runs; do
        if [ "$((koala_waited % 10))" -eq 0 ]; then
            koala_interrupt
        fi
        koala_pause
    done
    koala_group=
}
