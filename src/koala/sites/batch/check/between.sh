# shellcheck shell=sh
# The job of a check between sites: its first node tells its name and a port at which it listens, tries those of the
# others once they are known, and ends when it is told to.

: "${koala_check_home?}" "${koala_patience_s?}"

cd "$koala_check_home" || exit 9
koala_nodes >nodes || exit 8
hostname -I >addresses 2>/dev/null
if ! command -v python3 >/dev/null; then
    echo none >port.part && mv port.part port
    exit 0
fi
exec python3 program "$koala_patience_s"
