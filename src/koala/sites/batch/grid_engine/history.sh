# shellcheck shell=sh
# How jobs ended that Grid Engine lists no more.

# koala_history IDS...: of a job that it does not know, or when there is no accounting, qacct says so in vain.
koala_history() {
    if command -v qacct >/dev/null; then
        for koala_each in "$@"; do
            qacct -j "$koala_each" 2>/dev/null
        done
    fi
    echo 'koala: end'
}
