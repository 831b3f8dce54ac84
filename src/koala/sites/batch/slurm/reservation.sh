# shellcheck shell=sh
# Reservations are known by their name.

# koala_reserve NAME BEGIN WORDS...: reserve what the words say from a time on, unless there is such a reservation. A
# time that has passed is now.
koala_reserve() {
    koala_name=$1
    koala_begin=$2
    shift 2
    if ! scontrol show reservation "$koala_name" >/dev/null 2>&1; then
        koala_ahead=$((koala_begin - $(date +%s)))
        if [ "$koala_ahead" -lt 1 ]; then
            koala_ahead=1
        fi
        scontrol create reservation ReservationName="$koala_name" "$@" Users="$(id -un)" \
            StartTime="now+$koala_ahead" >/dev/null || return 1
    fi
    printf '%s\n' "$koala_name"
}

# koala_unreserve NAME: delete it. A reservation whose job is still being cleaned up is in use, so it is tried twice.
# Who may not reserve is told so even where there is nothing to delete.
koala_unreserve() {
    koala_tries=0
    while koala_said=$(scontrol show reservation "$1" 2>&1); do
        if koala_said=$(scontrol delete "ReservationName=$1" 2>&1); then
            return 0
        fi
        if [ "$koala_tries" -gt 0 ]; then
            break
        fi
        koala_tries=1
        sleep 1
    done
    case $koala_said in
    *"not found"*) return 0 ;;
    esac
    printf '%s\n' "$koala_said" >&2
    return 1
}
