# shellcheck shell=sh
# What Slurm shows of a cluster: nodes, jobs that wait and run, limits, what nodes have beside processors, this user's
# jobs.
#
# What may hold anything comes last in a line, and '|' separates. A job's name may hold even newlines, so other users'
# names are not asked for, and our own come last of all, each behind a word. Of others' jobs that run, the nodes tell
# how much they hold, and their lines when they end. A script sets koala_partition, empty for the default one.

: "${koala_partition?}"

koala_listing() {
    koala_plain_output
    koala_user=$(id -un) && koala_list_nodes && koala_list_waiting || return
    koala_jobs=$(squeue --noheader --all --states=all --format='job %A|%T|%C|%P|%V|%a|%q|%r|%j' \
        --user="$koala_user") || return
    koala_read_settings
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

# A line for each partition that a node is in, with its memory and its features.
koala_list_nodes() {
    echo 'koala nodes'
    sinfo --noheader --Node --format='%N|%T|%C|%P|%a|%l|%m|%b' ${koala_partition:+--partition="$koala_partition"}
}

# Those that wait in the order in which Slurm considers them. Times are seconds since the epoch: the site may be in
# another time zone.
koala_list_waiting() {
    echo 'koala waiting'
    SLURM_TIME_FORMAT='%s' squeue --noheader --states=PENDING,CONFIGURING,RUNNING,COMPLETING \
        --format='%i|%C|%P|%T|%e|%r' ${koala_partition:+--partition="$koala_partition"}
}
