# shellcheck shell=sh
# An application that starts once on each node, as torchrun requires. A component with one node runs it like any other
# application. torchrun.py defines the variables.
# shellcheck disable=SC2154,SC2034  # other parts of the script set and read them

koala_torchrun() {
    koala_go_value KOALA_TORCHRUN_WORKERS
    koala_workers=$koala_value
    if [ -z "$koala_workers" ]; then
        koala_run
    fi
    KOALA_HOME=$koala_home
    export KOALA_HOME
    koala_counting collector
    koala_go_value NODE_RANK
    koala_node_rank=$koala_value
    koala_node=0
    exec 4<&0
    koala_open_group
    while [ -n "$koala_workers" ]; do
        koala_here=${koala_workers%%,*}
        if [ "$koala_here" -gt 0 ]; then
            [ "$koala_node" -eq 0 ] || koala_expect_usage "$koala_node"
            koala_join_group "$koala_node" /bin/sh "$koala_home/script" worker "$koala_node_rank" "$koala_here" \
                "$koala_node"
            koala_node_rank=$((koala_node_rank + 1))
            # The first node reads the user's standard input.
            exec 4</dev/null
        fi
        koala_node=$((koala_node + 1))
        koala_workers=${koala_workers#"$koala_here"}
        koala_workers=${koala_workers#,}
    done
    koala_await_group
    koala_code=$?
    koala_stop_counting
    koala_end_group
    return "$koala_code"
}

# koala_worker RANK WORKERS NODE: run the application on one node, with its own rank and the number of workers to start
# there.
koala_worker() {
    if [ "$3" -gt 0 ]; then
        # Work that begins here must not be left behind.
        trap koala_end_child TERM INT HUP
        koala_begin_measuring
    fi
    umask "$koala_umask"
    koala_enter || exit 126
    koala_batch_variables
    if [ "$koala_batch_system" = slurm ]; then
        SLURM_PROCID=$1
        SLURM_NODEID=$1
        export SLURM_PROCID SLURM_NODEID
    fi
    # The application replaces a shell, and must not find a child that it has not started.
    (koala_counting counter)
    if [ "$3" -eq 0 ]; then
        koala_run_worker "$1" "$2"
    fi
    exec 4<&0
    koala_run_worker "$1" "$2" <&4 4<&- &
    koala_child=$!
    [ -z "$koala_must_end" ] || koala_end_child
    koala_await "$koala_child"
    koala_code=$?
    koala_put_usage_of_node "$3"
    exit "$koala_code"
}

koala_run_worker() {
    koala_run "NODE_RANK=$1" "PET_NODE_RANK=$1" "NPROC_PER_NODE=$2" "PET_NPROC_PER_NODE=$2"
}
