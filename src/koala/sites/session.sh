# shellcheck shell=sh
# What a shell that stays open for many texts knows. Each text comes as a document on standard input.

# koala_run SECONDS: run a text in a shell of its own. A program whose connection is cut goes on at this end, so that
# its time is kept here.
if command -v timeout >/dev/null 2>&1; then
    koala_run() { timeout -k 1 "$1" sh; }
else
    koala_run() { sh; }
fi

# koala_tell MARK CODE: end what a text has written, on both streams.
koala_tell() {
    printf '\n%s %s\n' "$1" "$2"
    printf '\n%s %s\n' "$1" "$2" >&2
}
