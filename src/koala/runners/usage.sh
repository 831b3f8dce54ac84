# shellcheck shell=sh
# The usage of the application: processor time, as the kernel counts it for the processes that the script has waited
# for, and the peak memory of its processes, sampled from time to time. A value that could not be measured is missing,
# not 0.
#
# The file usage has milliseconds and KiB, or a '-' for an unknown value. Where processes run on other nodes, the script
# first creates an empty file .usage-N for each such node, and the starter of the processes there fills it.
# shellcheck disable=SC2154,SC2034  # other parts of the script set and read them

# koala_add_time TEXT: add a time in the shell's format, such as 1m2.345s, to koala_ms.
koala_add_time() {
    koala_minutes=${1%%m*}
    koala_rest=${1#*m}
    koala_rest=${koala_rest%s}
    koala_seconds=${koala_rest%%[.,]*}
    koala_fraction=${koala_rest#*[.,]}000
    koala_fraction=${koala_fraction%"${koala_fraction#???}"}
    case $koala_minutes$koala_seconds$koala_fraction in
    '' | *[!0-9]*) return 1 ;;
    esac
    koala_ms=$((koala_ms + koala_minutes * 60000 + koala_seconds * 1000 + 1$koala_fraction - 1000))
}

# Put the processor time of all processes that this shell has waited for into koala_ms; empty if the shell does not
# report it.
koala_time_waited_for() {
    koala_ms=0
    # A subshell would report its own time. "command" keeps an error from ending the script.
    koala_times=$koala_home/.times-$koala_host-$$
    {
        command times >"$koala_times" && {
            read -r koala_line && read -r koala_user koala_system
        } <"$koala_times" && koala_add_time "$koala_user" && koala_add_time "$koala_system"
    } 2>/dev/null || koala_ms=
}

# Sample the memory of all processes below this script, without the samplers, and whether the application has other
# processes, which somebody else waits for. Processes below another script of the component, which has its node on this
# machine, belong to that script.
koala_look_at_memory() {
    {
        for koala_one in "$koala_home/.times-$koala_host-"*; do
            printf 'top %s\n' "${koala_one##*-}"
        done
        koala_marked
        cat /proc/[0-9]*/status
    } 2>/dev/null | awk -v top="$$" -v own="$koala_self" -v peak="$koala_peak_kib" -v others="$koala_others" '
        BEGIN { tops[top] = 1 }
        $1 == "top" { tops[$2] = 1 }
        $1 == "marked" { marked[$2] = 1 }
        $1 == "Pid:" { pid = $2 }
        $1 == "PPid:" { above[pid] = $2 }
        $1 == "VmHWM:" { highest[pid] = $2 }
        $1 == "VmRSS:" { now[pid] = $2 }
        END {
            for (pid in now) {
                found = 0
                up = pid
                for (hops = 0; up + 0 > 1 && !(up in tops) && up != own && hops < 1000; hops++) {
                    if (up in marked) found = 1
                    up = above[up]
                }
                if (up == own || up != top && (up in tops || !found) || pid in tops) continue
                if (up != top) others = 1
                sum += now[pid]
                if (highest[pid] + 0 > peak + 0) peak = highest[pid]
            }
            if (sum > peak + 0) peak = sum
            print peak + 0, others + 0
        }'
}

# Sample soon, and then at doubling intervals, up to half a minute. The file has the peak in KiB and whether there were
# other processes.
koala_follow_memory() {
    read -r koala_self koala_line </proc/self/stat || exit 0
    koala_counted_s=0
    koala_next_s=1
    koala_peak_kib=0
    koala_others=0
    koala_nap 0.2 2>/dev/null
    while :; do
        koala_seen=$(koala_look_at_memory)
        case ${koala_seen%% *} in
        '' | 0 | *[!0-9]*) ;;
        *)
            koala_peak_kib=${koala_seen%% *}
            koala_others=${koala_seen##* }
            printf '%s\n' "$koala_seen" >"$koala_home/.memory-$koala_host-$$"
            ;;
        esac
        koala_sleep_until "$koala_next_s"
        koala_next_s=$((koala_next_s < 30 ? 2 * koala_next_s : koala_next_s + 30))
    done
}

# From here until koala_measured the script waits only for the application.
koala_begin_measuring() {
    koala_time_waited_for
    koala_ms_before=$koala_ms
    koala_beside measured
    koala_measuring_process=$!
}

# koala_read_numbers FILE: put the two words of a short file into koala_first and koala_second, '-' for a word that is
# not a number. The application can write anything there.
koala_read_numbers() {
    koala_first=-
    koala_second=-
    if [ -f "$1" ]; then
        koala_line=$(head -c 40 <"$1" 2>/dev/null)
        koala_first=${koala_line%% *}
        koala_second=${koala_line#* }
    fi
    koala_is_number "$koala_first" || koala_first=-
    koala_is_number "$koala_second" || koala_second=-
}

# A number has no more digits than the shell can count with, and is not octal.
koala_is_number() {
    case $1 in
    '' | *[!0-9]* | 0?* | ????????????????*) return 1 ;;
    esac
}

# Put the usage on this node into koala_used_ms and koala_used_kib.
koala_measured() {
    koala_time_waited_for
    koala_end_beside measured "$koala_measuring_process"
    koala_read_numbers "$koala_home/.memory-$koala_host-$$"
    koala_used_kib=$koala_first
    koala_used_ms=-
    # The processor time of other processes is unknown here.
    if [ -n "$koala_ms" ] && [ -n "$koala_ms_before" ] && [ "$koala_second" != 1 ]; then
        koala_used_ms=$((koala_ms - koala_ms_before))
    fi
}

# Expect usage from a node; without a value it is unknown.
koala_expect_usage() {
    { printf '' >"$koala_home/.usage-$1"; } 2>/dev/null
}

# Record the usage on another node than the script's.
koala_put_usage_of_node() {
    koala_measured
    { printf '%s %s\n' "$koala_used_ms" "$koala_used_kib" >"$koala_home/.usage-$1"; } 2>/dev/null
}

# Record the usage of the component on all its nodes: a value that is missing on one node is missing for all.
koala_put_usage() {
    koala_measured
    for koala_one in "$koala_home"/.usage-*; do
        if [ -e "$koala_one" ]; then
            koala_read_numbers "$koala_one"
            case $koala_first$koala_used_ms in
            *-*) koala_used_ms=- ;;
            *) koala_used_ms=$((koala_used_ms + koala_first)) ;;
            esac
            case $koala_second$koala_used_kib in
            *-*) koala_used_kib=- ;;
            *) koala_used_kib=$((koala_used_kib + koala_second)) ;;
            esac
        fi
    done
    # The processes of such steps belong to the batch system.
    [ -z "$koala_starts_steps" ] || koala_used_ms=-
    # Processes of a plain application on other nodes are not seen.
    if [ "$koala_job_type" = plain ] && koala_has_several_nodes; then
        koala_used_ms=-
        koala_used_kib=-
    fi
    koala_put usage "$koala_used_ms $koala_used_kib"
}
