# shellcheck shell=sh
# MPI: mpiexec in the first component, and a proxy on each node of every component. mpi.py defines the form of the mail
# between the components.
# shellcheck disable=SC2154  # other parts of the script set them

# Process the output of mpiexec: first the proxies, which go to the driver with their nodes; then the application's
# output.
koala_sort_output() {
    koala_proxies=KOALA_MPI_HOSTS=$koala_hosts
    while IFS= read -r koala_line; do
        case $koala_line in
        HYDRA_LAUNCH:*)
            koala_proxies="$koala_proxies
$koala_line"
            ;;
        HYDRA_LAUNCH_END*)
            koala_keep outbox/proxies "$koala_proxies
$koala_line" "$koala_for_ever_tenths"
            exec cat
            ;;
        *) printf '%s\n' "$koala_line" ;;
        esac
    done
}

koala_start_mpiexec() {
    mkfifo "$koala_home/.mpiexec-output" || exit 74
    koala_go_value KOALA_MPI_ADDRESS
    koala_address=$koala_value
    koala_go_value KOALA_MPI_HOSTS
    koala_hosts=$koala_value
    koala_go_value KOALA_MPI_RANKS
    exec 4<&0
    # Each component's own script starts its ranks, so mpiexec needs to know nothing about the application.
    # shellcheck disable=SC2016  # for the rank's shell to expand
    mpiexec -rmk user -launcher manual -genvnone -wdir / -localhost "$koala_address" \
        -hosts "$koala_hosts" -n "$koala_value" \
        /bin/sh -c 'exec /bin/sh "$KOALA_HOME/script" rank' <&4 4<&- >"$koala_home/.mpiexec-output" &
    koala_mpiexec=$!
    exec 4<&-
    trap koala_interrupt TERM INT HUP
    koala_sort_output <"$koala_home/.mpiexec-output" &
    koala_sorter=$!
}

# Handle a rank's note of its failure on this node, and end the proxy after a while. The proxy may not have noticed the
# failure; then nothing would end before all other ranks do.
# shellcheck disable=SC2317  # a signal calls it
koala_rank_left() {
    koala_begin_waiting
    while kill -0 "$koala_child" 2>/dev/null; do
        if [ "$koala_waited" -ge "$koala_ranks_grace_tenths" ]; then
            printf '' >"$koala_ranks/.ended"
            koala_end_child
            return
        fi
        koala_pause
    done
}

# koala_proxy NODE PROGRAM...: run a proxy on its node. It does not notice a rank that skipped MPI_Finalize, and may
# leave ranks behind.
koala_proxy() {
    koala_node=$1
    shift
    if [ ! -x "$1" ]; then
        # MPICH is installed elsewhere on this site.
        shift
        set -- hydra_pmi_proxy "$@"
    fi
    koala_ranks=$koala_home/.ranks-$koala_host-$$
    mkdir "$koala_ranks" || exit 74
    KOALA_RANKS=$koala_ranks
    export KOALA_RANKS
    trap koala_end_child TERM INT HUP
    koala_counting counter 2
    [ "$koala_node" -eq 0 ] || koala_begin_measuring
    exec 4</dev/null
    trap koala_rank_left USR1
    koala_with_child 0 "$@"
    koala_code=$?
    trap '' USR1
    [ "$koala_node" -eq 0 ] || koala_put_usage_of_node "$koala_node"
    koala_stop_counting
    koala_signal_child KILL
    koala_code_in "$koala_ranks"
    if [ "$koala_code" -ne 0 ] && [ ! -e "$koala_home/.ranks-ran" ]; then
        koala_say_unresolved "$@" >&2
    fi
    exit "${koala_failure:-$koala_code}"
}

# koala_say_unresolved WORDS...: if a proxy did not reach mpiexec, report whether this node can resolve the name of
# mpiexec's node. The proxy's own last words are about firewalls.
koala_say_unresolved() {
    while [ "$#" -gt 1 ] && [ "$1" != --control-port ]; do
        shift
    done
    koala_name=${2-}
    koala_name=${koala_name%:*}
    if [ -n "$koala_name" ] && command -v getent >/dev/null 2>&1 && ! getent ahosts "$koala_name" >/dev/null 2>&1; then
        printf "node %s does not know the name %s, where mpiexec is: the grid file may say 'host' or 'network' for that site\n" \
            "$koala_host" "$koala_name"
    fi
}

# Put the exit code of a failed rank that has left a note in one of these directories into koala_failure, or nothing.
koala_code_in() {
    koala_failure=
    # A name that no trap uses.
    for koala_noted in "$@"; do
        if [ -e "$koala_noted/.code" ]; then
            read -r koala_failure <"$koala_noted/.code"
            return
        fi
    done
}

# Do the same for any rank of this component.
koala_rank_code() {
    koala_code_in "$koala_home"/.ranks-*
}

# Read the mail: for each proxy the index of its node and the words of its command, with an empty line at the end.
koala_run_proxies() {
    koala_counting collector
    exec 4</dev/null
    koala_open_group
    set --
    while IFS= read -r koala_line; do
        if [ -n "$koala_line" ]; then
            set -- "$@" "$koala_line"
            continue
        fi
        koala_node=$1
        shift
        [ "$koala_node" -eq 0 ] || koala_expect_usage "$koala_node"
        koala_join_group "$koala_node" /bin/sh "$koala_home/script" proxy "$koala_node" "$@" >&2
        set --
    done <"$koala_home/inbox/proxy"
    koala_await_group
    koala_code=$?
    koala_stop_counting
    return "$koala_code"
}

# mpiexec's exit code is the job's. End mpiexec if it waits for a rank that will not come back.
koala_await_mpiexec() {
    koala_rank_code
    if [ -z "$koala_failure" ] && [ "$1" -ne 0 ]; then
        koala_failure=$1
    fi
    koala_begin_waiting
    while [ -n "$koala_failure" ] && kill -0 "$koala_mpiexec" 2>/dev/null; do
        if [ "$koala_waited" -ge "$koala_mpiexec_grace_tenths" ]; then
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
    # Where ranks were ended because one had failed, mpiexec reports their end and not the failure.
    for koala_one in "$koala_home"/.ranks-*/.ended; do
        if [ -e "$koala_one" ] && [ -n "$koala_failure" ]; then
            return "$koala_failure"
        fi
    done
    return "$koala_code"
}

# A rank's own failure is the component's failure; ranks of other nodes may be about to end by themselves. Where ranks
# ran and were cut off, the first component knows why. The scheduler aborts this component once it has received that,
# and until then the component reports nothing that could be taken for the cause.
koala_await_verdict() {
    koala_begin_waiting
    while [ "$1" -ne 0 ] && [ -z "$koala_interrupted" ]; do
        if [ -e "$koala_home/abort" ]; then
            koala_finish aborted
        fi
        koala_patience=$koala_verdict_tenths
        koala_rank_code
        if [ -n "$koala_failure" ]; then
            koala_group_runs || break
            koala_patience=$koala_mpiexec_grace_tenths
        elif [ ! -e "$koala_home/.ranks-ran" ]; then
            break
        fi
        if [ "$koala_waited" -ge "$koala_patience" ]; then
            break
        fi
        koala_pause
    done
    koala_rank_code
    return "${koala_failure:-$1}"
}

koala_mpi() {
    KOALA_HOME=$koala_home
    export KOALA_HOME
    if [ "$koala_component" -eq 0 ]; then
        koala_start_mpiexec
    fi
    if ! koala_wait_for inbox/proxy "$koala_mpiexec"; then
        wait "$koala_mpiexec"
        koala_code=$?
        wait "$koala_sorter"
        # It ended before any rank ran, so it has not succeeded, whatever it reports.
        [ "$koala_code" -ne 0 ] || koala_code=1
        return "$koala_code"
    fi
    koala_run_proxies
    koala_code=$?
    if [ "$koala_component" -eq 0 ]; then
        koala_await_mpiexec "$koala_code"
    else
        koala_await_verdict "$koala_code"
    fi
    koala_code=$?
    koala_mpiexec=
    koala_end_group
    return "$koala_code"
}

# The first of several failed ranks notifies the shell that started the proxy, whose number is in its directory.
koala_note_failure() {
    koala_begin_waiting
    while [ ! -e "$koala_ranks/.code" ] && [ "$koala_waited" -lt "$koala_write_tenths" ]; do
        if { printf '%s\n' "$koala_code" >"$koala_ranks/.code.$$"; } 2>/dev/null; then
            ln "$koala_ranks/.code.$$" "$koala_ranks/.code" 2>/dev/null && kill -USR1 "${koala_ranks##*-}" 2>/dev/null
            break
        fi
        koala_pause
    done
    rm -f "$koala_ranks/.code.$$"
}

# Select the GPUs of this rank among those that the component sees on this node: as many as a task has, in the order of
# the node's ranks. Where the batch system assigned fewer, the rank sees all of them.
koala_rank_gpus() {
    [ "$koala_task_gpus" -gt 0 ] || return 0
    koala_local=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-}}
    koala_first=$((${koala_local:-0} * koala_task_gpus + 1))
    koala_own=$(printf '%s\n' "${CUDA_VISIBLE_DEVICES-}" | tr ',' '\n' |
        sed -n "$koala_first,$((koala_first + koala_task_gpus - 1))p")
    # shellcheck disable=SC2086  # a number or an identifier of a GPU each
    set -- $koala_own
    if [ -n "$koala_local" ] && [ "$#" -eq "$koala_task_gpus" ]; then
        CUDA_VISIBLE_DEVICES=$(IFS=, && printf '%s' "$*")
        export CUDA_VISIBLE_DEVICES
    fi
}

# Run one rank: the application, and a note of a failure, which hydra forgets if the rank skipped MPI_Finalize.
koala_rank() {
    koala_ranks=$KOALA_RANKS
    unset KOALA_RANKS
    { printf '' >"$koala_home/.ranks-ran" && printf '' >"$koala_ranks/$$"; } || exit "$koala_exit_unwritten"
    umask "$koala_umask"
    koala_enter || exit 126
    koala_rank_gpus
    koala_batch_variables
    if [ "$koala_batch_system" = slurm ]; then
        # The batch system's variables of the proxy do not apply to its ranks.
        SLURM_PROCID=${PMI_RANK:-$SLURM_PROCID}
        SLURM_LOCALID=${MPI_LOCALRANKID:-$SLURM_LOCALID}
    fi
    (koala_run)
    koala_code=$?
    rm -f "$koala_ranks/$$"
    if [ "$koala_code" -gt 128 ]; then
        kill "-$((koala_code - 128))" "$$"
    elif [ "$koala_code" -ne 0 ]; then
        koala_note_failure
    fi
    exit "$koala_code"
}
