# shellcheck shell=sh
# Reservations are known by their name.

# koala_reserve NAME BEGIN LATE ENDING WORDS...: reserve what the words say from a time on, unless there is such a
# reservation. A time that has passed is now. Slurm refuses what jobs hold whose limits it would have to cut short. Our
# own jobs end long before theirs, and others may have come since the time was chosen: if all jobs on the nodes end so
# many seconds late at most, or are among those named in ENDING, it is reserved all the same and begins as they end.
koala_reserve() {
    koala_name=$1
    koala_begin=$2
    koala_latest=$((koala_begin + $3))
    koala_ending=$4
    shift 4
    if ! koala_made=$(scontrol show reservation "$koala_name" --oneliner 2>/dev/null); then
        if ! koala_said=$(koala_create "$@" 2>&1); then
            case $koala_said in
            *busy*) ;;
            *)
                printf '%s\n' "$koala_said" >&2
                return 1
                ;;
            esac
            koala_create "$@" Flags=IGNORE_JOBS >/dev/null || return 1
            koala_made=$(scontrol show reservation "$koala_name" --oneliner) || return 1
        fi
    fi
    case $koala_made in
    *IGNORE_JOBS*) koala_ends_in_time || return 1 ;;
    esac
    printf '%s\n' "$koala_name"
}

# koala_create WORDS...: make the reservation.
koala_create() {
    koala_ahead=$((koala_begin - $(date +%s)))
    if [ "$koala_ahead" -lt 1 ]; then
        koala_ahead=1
    fi
    scontrol create reservation ReservationName="$koala_name" "$@" Users="$(id -un)" StartTime="now+$koala_ahead"
}

# Whether all jobs on the nodes of the reservation end in time; a name may hold anything and comes last.
koala_ends_in_time() {
    koala_nodes=$(printf '%s\n' "$koala_made" | sed -n 's/.* Nodes=\([^ ]*\) .*/\1/p')
    koala_jobs=$(SLURM_TIME_FORMAT='%s' squeue --noheader --all --states=CONFIGURING,RUNNING,SUSPENDED,COMPLETING \
        --nodelist="$koala_nodes" --format='%e|%u|%j') || return 1
    koala_late=$(printf '%s\n' "$koala_jobs" | awk -F '|' -v user="$(id -un)" -v latest="$koala_latest" \
        -v ending=" $koala_ending " '
        $0 == "" || ($1 ~ /^[0-9]+$/ && $1 + 0 <= latest + 0) { next }
        $2 != user || $3 == "" || !index(ending, " " $3 " ") { late += 1 }
        END { print late + 0 }')
    if [ "$koala_late" -gt 0 ]; then
        printf 'jobs on %s end too late for it: %s\n' "$koala_nodes" "$koala_late" >&2
        return 1
    fi
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
