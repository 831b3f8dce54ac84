# shellcheck shell=sh
# The nodes of a component, for its script.
# shellcheck disable=SC3028  # Grid Engine sets HOSTNAME

# A host may stand there once for each of its queues; the one that the script runs on comes first.
koala_nodes() {
    if [ -r "${PE_HOSTFILE-}" ]; then
        awk -v own="${HOSTNAME-}" '
            NF >= 2 { if (!($1 in slots)) order[++count] = $1; slots[$1] += $2 }
            END {
                if (own in slots) print own, slots[own]
                for (i = 1; i <= count; i++) if (order[i] != own) print order[i], slots[order[i]]
            }' "$PE_HOSTFILE"
    else
        printf '%s %s\n' "${HOSTNAME:-$(uname -n)}" "${NSLOTS:-1}"
    fi
}

# qrsh gives its arguments to another shell and drops part of the environment, so both travel in a file.
koala_on_node() {
    koala_node=$1
    shift
    if [ "$koala_node" = "${HOSTNAME-}" ] || [ ! -r "${PE_HOSTFILE-}" ]; then
        exec "$@"
    fi
    koala_order=$(mktemp "${koala_home:-${KOALA_HOME:-$(pwd -P)}}/.order.XXXXXX") || exit 74
    {
        # These belong to the other node.
        # shellcheck disable=SC2016  # for the other node's shell to expand
        echo 'koala_own="${TMPDIR-/tmp} ${HOSTNAME-}"'
        export -p
        # shellcheck disable=SC2016
        echo 'TMPDIR=${koala_own%% *} TMP=$TMPDIR HOSTNAME=${koala_own#* }'
        printf 'cd %s || exit 126\nexec' "$(koala_quoted "$(pwd -P)")"
        for koala_word in "$@"; do
            printf ' %s' "$(koala_quoted "$koala_word")"
        done
        echo
    } >"$koala_order" || exit 74
    koala_qrsh=$(command -v qrsh || echo "${SGE_BINARY_PATH:-$SGE_ROOT/bin/${ARC-}}/qrsh")
    exec "$koala_qrsh" -inherit -nostdin "$koala_node" /bin/sh "$(koala_quoted "$koala_order")"
}

# A word as sh reads it back; the x keeps newlines at its end.
koala_quoted() {
    koala_text=$(printf '%sx' "$1" | sed "s/'/'\\\\''/g")
    printf "'%s'" "${koala_text%x}"
}
