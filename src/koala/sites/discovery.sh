# shellcheck shell=sh
# What batch systems a host has: a line for each thing found, behind a first line that tells the answer from what a
# login prints. A script sets koala_queues_max, koala_nodes_max, koala_resolve_s, koala_found_mark, and
# koala_login_names: variables that the programs need of a login's environment where a command by itself does not have
# them.

: "${koala_queues_max?}" "${koala_nodes_max?}" "${koala_resolve_s?}" "${koala_found_mark?}" "${koala_login_names?}"

# The last line of a complaint that is not empty.
koala_last_line() {
    printf '%s\n' "$1" | sed '/./!d' | sed -n '$p'
}

# koala_tell_nodes KIND: the address of each node on standard input, a line each of queue, name and address, as this host
# knows it; nothing where that takes long, as some of them would be taken for all.
koala_tell_nodes() {
    koala_until=$(($(date +%s) + koala_resolve_s))
    koala_lines=
    while IFS='|' read -r koala_queue koala_name koala_address; do
        if [ "$(date +%s)" -ge "$koala_until" ]; then
            return
        fi
        koala_lines="$koala_lines$1-node $koala_queue|$koala_name|$(koala_resolve "$koala_address")
"
    done
    printf '%s' "$koala_lines"
}

koala_find_slurm() {
    if koala_said=$(sinfo -h -o '%P|%a|%C' 2>&1); then
        printf '%s\n' "$koala_said" | sed -n -e 's/^/slurm-queue /p' -e "${koala_queues_max}q"
        scontrol show config 2>/dev/null |
            sed -n -e 's/^ClusterName *= */slurm-name /p' -e 's/^SlurmctldHost[^=]*= */slurm-master /p'
        sinfo -h -N -o '%R|%N|%o' | sed "${koala_nodes_max}q" | koala_tell_nodes slurm
    else
        printf 'slurm-silent %s\n' "$(koala_last_line "$koala_said")"
    fi
}

koala_find_grid_engine() {
    if koala_said=$(qstat -g c 2>&1); then
        printf '%s\n' "$koala_said" | sed -n -e 's/^/grid_engine-queue /p' -e "${koala_queues_max}q"
        printf 'grid_engine-name %s\n' "${SGE_CELL:-default}"
        koala_said=$(cat "${SGE_ROOT:-}/${SGE_CELL:-default}/common/act_qmaster")
        printf 'grid_engine-master %s\n' "$koala_said ${SGE_ROOT:-} ${SGE_QMASTER_PORT:-}"
        for koala_each in $(qconf -spl | sed "${koala_queues_max}q"); do
            printf 'grid_engine-environment %s %s\n' "$koala_each" \
                "$(qconf -sp "$koala_each" | sed -n 's/^control_slaves *//p')"
        done
        for koala_each in $(qconf -sql | sed "${koala_queues_max}q"); do
            printf 'grid_engine-offers %s %s\n' "$koala_each" \
                "$(qconf -sq "$koala_each" | sed -n 's/^pe_list *//p')"
        done
        qconf -sel | sed -n -e 's/.*/|&|&/p' -e "${koala_nodes_max}q" | koala_tell_nodes grid_engine
    else
        printf 'grid_engine-silent %s\n' "$(koala_last_line "$koala_said")"
    fi
}

koala_find() {
    if command -v sbatch >/dev/null 2>&1 && command -v sinfo >/dev/null 2>&1; then
        koala_find_slurm
    fi
    # Other systems have a qsub too, but no qconf.
    if command -v qsub >/dev/null 2>&1 && command -v qconf >/dev/null 2>&1; then
        koala_find_grid_engine
    fi
} 2>/dev/null

# The variables as a login has them, a line each.
koala_login_variables() {
    # shellcheck disable=SC2016  # the login shell expands it
    sh -lc 'for each in '"$koala_login_names"'; do
        eval "value=\${$each:-}"
        [ -z "$value" ] || printf "koala-login %s %s\n" "$each" "$value"
    done' 2>/dev/null | sed -n '/^koala-login /p'
}

# Where a plain command finds nothing that answers, the login's environment may know more.
koala_discover() {
    koala_found=$(koala_find)
    case $koala_found in
    *slurm-queue* | *grid_engine-queue*)
        printf '%s\n' "$koala_found_mark" "$koala_found"
        return
        ;;
    esac
    koala_login=$(koala_login_variables)
    while read -r koala_word koala_name koala_value; do
        if [ "$koala_word" = koala-login ]; then
            export "$koala_name=$koala_value"
        fi
    done <<KOALA_END
$koala_login
KOALA_END
    koala_again=$(koala_find)
    case $koala_again in
    *slurm-queue* | *grid_engine-queue*) printf '%s\n' "$koala_found_mark" "$koala_login" "$koala_again" ;;
    *) printf '%s\n' "$koala_found_mark" "$koala_found" "$koala_again" ;;
    esac
}
