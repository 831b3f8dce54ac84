# shellcheck shell=sh
# For discovery.sh, whose functions it calls and whose values it has.

: "${koala_queues_max?}" "${koala_nodes_max?}"

koala_find_slurm() {
    if ! { command -v sbatch && command -v sinfo; } >/dev/null 2>&1; then
        return
    fi
    if koala_said=$(sinfo -h -o '%P|%a|%C' 2>&1); then
        printf '%s\n' "$koala_said" | sed -n -e 's/^/slurm-queue /p' -e "${koala_queues_max}q"
        scontrol show config 2>/dev/null |
            sed -n -e 's/^ClusterName *= */slurm-name /p' -e 's/^SlurmctldHost[^=]*= */slurm-master /p'
        sinfo -h -N -o '%R|%N|%o' | sed "${koala_nodes_max}q" | koala_tell_nodes slurm
    else
        printf 'slurm-silent %s\n' "$(koala_last_line "$koala_said")"
    fi
}
