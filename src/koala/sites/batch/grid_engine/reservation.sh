# shellcheck shell=sh
# Reservations, which Grid Engine knows by an id; their names are ours.

# koala_reservations NAME: print the ids of the reservations of that name; the tags come a line each.
koala_reservations() {
    koala_all=$(qrstat -u "$(id -un)" -xml) || return 1
    printf '%s\n' "$koala_all" | awk -v name="$1" '
        /<id>/ { id = $0; gsub(/[^0-9]/, "", id) }
        index($0, "<name>" name "</name>") { print id }'
}

# koala_reserve NAME BEGIN WORDS...: reserve what the words say from a time on, and print the id. Grid Engine takes a
# name twice: of two that were asked for at a time the first stands, and the other is given back. It wants the time as
# its qmaster's clock shows it; GNU and BSD know different words for that.
koala_reserve() {
    koala_name=$1
    koala_begin=$2
    shift 2
    koala_ids=$(koala_reservations "$koala_name") || return 1
    koala_first=
    for koala_id in $koala_ids; do
        if [ -n "$koala_first" ]; then koala_delete qrdel "$koala_id" || return 1; else koala_first=$koala_id; fi
    done
    if [ -n "$koala_first" ]; then
        printf '%s\n' "$koala_first"
        return 0
    fi
    if [ "$koala_begin" -gt "$(date +%s)" ]; then
        koala_form=+%Y%m%d%H%M.%S
        koala_begin=$(date -d "@$koala_begin" "$koala_form" 2>/dev/null || date -r "$koala_begin" "$koala_form")
        set -- -a "$koala_begin" "$@"
    fi
    qrsub -N "$koala_name" -u "$(id -un)" "$@"
}

# koala_unreserve NAME: delete it, and with it a job that still runs in it. Who may not reserve is denied even where
# there is nothing to delete, so that it is looked for first.
koala_unreserve() {
    koala_ids=$(koala_reservations "$1") || return 1
    if [ -n "$koala_ids" ]; then
        koala_delete qrdel "$1"
    fi
}
