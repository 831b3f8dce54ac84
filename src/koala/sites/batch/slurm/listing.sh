# shellcheck shell=sh
# What Slurm shows of a cluster: nodes, jobs that wait, limits, what nodes have beside processors, this user's jobs.
#
# What may hold anything comes last in a line, and '|' separates. A job's name may hold even newlines, so other users'
# names are not asked for, and our own come last of all, each behind a word. Of others' jobs that run, the nodes tell
# enough. A script sets koala_partition, empty for the default one.

: "${koala_partition?}"

koala_listing() {
    koala_plain_output
    koala_user=$(id -un) && koala_list_nodes && koala_list_waiting || return
    koala_jobs=$(squeue --noheader --all --states=all --format='job %A|%T|%C|%P|%V|%a|%q|%r|%j' \
        --user="$koala_user") || return
    echo 'koala quota'
    koala_quota
    echo 'koala resources'
    koala_resources
    printf 'koala jobs\n%s\n' "$koala_jobs"
}

# What a listing tells of memory.
koala_memory() {
    koala_plain_output
    koala_list_nodes || return
    echo 'koala resources'
    koala_resources
}

# A line for each partition that a node is in.
koala_list_nodes() {
    echo 'koala nodes'
    sinfo --noheader --Node --format='%N|%T|%C|%P|%a|%l' ${koala_partition:+--partition="$koala_partition"}
}

koala_list_waiting() {
    echo 'koala waiting'
    squeue --noheader --states=PENDING --format='%i|%C|%P|%r' ${koala_partition:+--partition="$koala_partition"}
}
