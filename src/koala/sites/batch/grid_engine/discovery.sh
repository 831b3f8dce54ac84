# shellcheck shell=sh
# For discovery.sh, whose functions it calls and whose values it has.

: "${koala_queues_max?}" "${koala_nodes_max?}"

koala_find_grid_engine() {
    # Other systems have a qsub too, but no qconf.
    if ! { command -v qsub && command -v qconf; } >/dev/null 2>&1; then
        return
    fi
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
