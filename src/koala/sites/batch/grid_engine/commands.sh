# shellcheck shell=sh
# What scripts that use Grid Engine's commands share.

# koala_parallel_environment WORDS...: print the name of one for jobs of several processors, where the words for qselect
# choose queue and user: the first that lets a job start processes on its other nodes, or else the first.
koala_parallel_environment() {
    koala_spare=
    koala_all=$(qconf -spl) || return 1
    for koala_each in $koala_all; do
        if [ -z "$(qselect -pe "$koala_each" "$@")" ]; then
            continue
        fi
        if qconf -sp "$koala_each" | grep '^control_slaves  *TRUE' >/dev/null; then
            printf '%s\n' "$koala_each"
            return 0
        fi
        : "${koala_spare:=$koala_each}"
    done
    if [ -z "$koala_spare" ]; then
        echo 'koala: no parallel environment is offered for more than one processor; ask the operator for one' >&2
        return 1
    fi
    printf '%s\n' "$koala_spare"
}

# koala_delete COMMAND...: run a command that deletes; it succeeds when what it deletes is not there any more.
koala_delete() {
    koala_said=$("$@" 2>&1) && return 0
    koala_said=$(printf '%s\n' "$koala_said" |
        grep -v -e 'does not exist' -e 'has registered' -e 'has deleted' -e 'already in deletion')
    if [ -z "$koala_said" ]; then
        return 0
    fi
    printf '%s\n' "$koala_said" >&2
    return 1
}
