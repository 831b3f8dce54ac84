# shellcheck shell=sh
# What batch systems a host has: a line for each thing found, behind a first line that tells the answer from what a
# login prints. A script sets koala_queues_max, koala_nodes_max, koala_resolve_s, koala_found_mark, koala_login_names:
# variables that the programs need of a login's environment where a command by itself does not have them, and koala_kinds:
# the batch systems, for each of which there is a function koala_find_KIND.

: "${koala_queues_max?}" "${koala_nodes_max?}" "${koala_resolve_s?}" "${koala_found_mark?}" "${koala_login_names?}"
: "${koala_kinds?}"

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

koala_find() {
    for koala_kind in $koala_kinds; do
        "koala_find_$koala_kind"
    done
} 2>/dev/null

# koala_has_queue FOUND: whether a batch system answered.
koala_has_queue() {
    [ -n "$(printf '%s\n' "$1" | sed -n '/^[a-z0-9_]*-queue /p')" ]
}

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
    if koala_has_queue "$koala_found"; then
        printf '%s\n' "$koala_found_mark" "$koala_found"
        return
    fi
    koala_login=$(koala_login_variables)
    while read -r koala_word koala_name koala_value; do
        if [ "$koala_word" = koala-login ]; then
            export "$koala_name=$koala_value"
        fi
    done <<KOALA_END
$koala_login
KOALA_END
    koala_again=$(koala_find)
    if koala_has_queue "$koala_again"; then
        printf '%s\n' "$koala_found_mark" "$koala_login" "$koala_again"
    else
        printf '%s\n' "$koala_found_mark" "$koala_found" "$koala_again"
    fi
}
