"""The part of a component's script that starts an application once on each node, as torchrun wants it.

A component with one node runs it as any other application. The variables are those of ``koala.runners.torchrun``.
"""

from __future__ import annotations

TORCHRUN_BODY = r"""
koala_torchrun() {
    koala_workers=$(koala_told KOALA_TORCHRUN_WORKERS)
    if [ -z "$koala_workers" ]; then
        koala_run
    fi
    KOALA_HOME=$koala_home
    export KOALA_HOME
    koala_node_rank=$(koala_told NODE_RANK)
    koala_node=0
    exec 4<&0
    koala_open_crew
    while [ -n "$koala_workers" ]; do
        koala_here=${koala_workers%%,*}
        if [ "$koala_here" -gt 0 ]; then
            koala_join "$koala_node" /bin/sh "$koala_home/script" worker "$koala_node_rank" "$koala_here"
            koala_node_rank=$((koala_node_rank + 1))
            # What the user wants read, the first node reads.
            exec 4</dev/null
        fi
        koala_node=$((koala_node + 1))
        koala_workers=${koala_workers#"$koala_here"}
        koala_workers=${koala_workers#,}
    done
    koala_await_crew
    koala_code=$?
    koala_end_crew
    return "$koala_code"
}

# The application on one node, which is told its own rank and how many workers are to start there.
koala_worker() {
    umask "$koala_umask"
    koala_enter || exit 126
    koala_run "NODE_RANK=$1" "PET_NODE_RANK=$1" "NPROC_PER_NODE=$2" "PET_NPROC_PER_NODE=$2"
}
"""
