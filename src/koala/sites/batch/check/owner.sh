# shellcheck shell=sh
# Whose a work directory is, if anybody's.

: "${koala_owner?}"

if [ ! -e "$koala_owner" ] && [ ! -h "$koala_owner" ]; then
    exit 0
fi
if [ ! -f "$koala_owner" ] || [ -h "$koala_owner" ]; then
    echo 'it is not a plain file' >&2
    exit 1
fi
echo owned && sed -n 1p "$koala_owner"
