# shellcheck shell=sh
# Whether this is a POSIX shell, which of the usual programs are missing, and the system's name.

: "${koala_programs?}"

koala_seven_times() {
    printf '%s' "$(($1 * 7))"
}

case $(koala_seven_times 6) in
42) ;;
*)
    echo 'no POSIX shell' >&2
    exit 1
    ;;
esac
for koala_each in $koala_programs; do
    command -v "$koala_each" >/dev/null || printf 'missing %s\n' "$koala_each"
done
uname -sm
