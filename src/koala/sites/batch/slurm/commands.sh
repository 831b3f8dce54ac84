# shellcheck shell=sh
# What all scripts that use Slurm's commands share.

# Unset what a user's own start files may set and what no option overrides: it would alter what commands print.
koala_plain_output() {
    unset SLURM_TIME_FORMAT SQUEUE_ACCOUNT SQUEUE_ARRAY SQUEUE_FORMAT2 SQUEUE_LICENSES SQUEUE_NAMES \
        SQUEUE_PARTITION SQUEUE_PRIORITY SQUEUE_QOS SQUEUE_SORT SQUEUE_USERS SINFO_PARTITION
}

# koala_at_most SECONDS COMMAND...: it is ended after so long where the site has timeout: clients of the database wait
# three quarters of a minute for one that does not answer.
koala_at_most() {
    if command -v timeout >/dev/null; then
        timeout "$@"
    else
        shift
        "$@"
    fi
}
