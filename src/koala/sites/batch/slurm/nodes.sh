# shellcheck shell=sh
# The nodes of a component, for its script.

# Slurm writes the processors of the nodes as 4(x2),3.
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

# koala_on_node NAME COMMAND...: become the command on that node.
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
