# shellcheck shell=sh
# Background work beside the application: it ends on request, and never outlives the script for long.
# shellcheck disable=SC2154  # other parts of the script set them

# koala_beside counted WHO: follow the traffic in the background, or koala_beside measured: the memory; until
# koala_end_beside counted, or measured, "$!".
koala_beside() {
    koala_over=$koala_home/.$1-$koala_host-$$
    (
        # Before the first nap the last background process is one of the script.
        koala_naps=
        trap 'kill ${koala_naps:+"$!"} 2>/dev/null; wait; exit 0' TERM INT HUP
        # A signal that came before the trap was lost.
        [ ! -e "$koala_over" ] || exit 0
        case $1 in
        counted) koala_follow_traffic "$2" ;;
        measured) koala_follow_memory ;;
        esac
    ) </dev/null >/dev/null 2>&1 4<&- 5>&- &
}

koala_end_beside() {
    # Where no file can be written, give it the time to set its trap.
    { printf '' >"$koala_home/.$1-$koala_host-$$"; } 2>/dev/null || sleep 1
    kill -TERM "$2" 2>/dev/null
    wait "$2" 2>/dev/null
}

# koala_nap SECONDS: sleep in the background work, while the script lives.
koala_nap() {
    sleep "$1" &
    koala_naps=1
    wait "$!"
    kill -0 "$$" 2>/dev/null || exit 0
}

# koala_sleep_until SECONDS: sleep until this long after its start, in short naps, so that nothing outlives the script
# for long.
koala_sleep_until() {
    while [ "$koala_counted_s" -lt "$1" ]; do
        koala_nap_s=$((koala_counted_s < 60 ? 1 : 5))
        koala_nap_s=$(($1 - koala_counted_s < koala_nap_s ? $1 - koala_counted_s : koala_nap_s))
        koala_nap "$koala_nap_s"
        koala_counted_s=$((koala_counted_s + koala_nap_s))
    done
}

# Print processes of the application that are not below the script, such as those of its own launcher: they have the
# variable that marks the application.
koala_marked() {
    if [ "$koala_job_type" != mpi ]; then
        grep -lzxF "KOALA_HOME=$koala_home" /proc/[0-9]*/environ | sed -n 's,^/proc/\([0-9]*\)/.*,marked \1,p'
    fi
}
