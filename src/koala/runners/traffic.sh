# shellcheck shell=sh
# The traffic of a component with the other components, which the kernel counts for each TCP connection.
#
# On every node a counter records the connections of the application there. A collector in the component's script leaves
# out those between processes of this component, and puts the traffic of the others into the outbox, as mail traffic-NN.
# Both do so only a few times, at doubling intervals. traffic.py defines the form of the mail. Ranks of MPI communicate
# only with each other. Other applications may communicate with anybody: of their connections only those to the nodes of
# the other components count.
# shellcheck disable=SC2154,SC2034  # other parts of the script set and read them

# koala_connections DEPTH: find the processes this far below the script's, or farther, and print the traffic of their
# connections: a line with both ends, bytes sent and bytes received for each. Connections of processes in between, such
# as a proxy's, which its ranks inherit, are the launcher's and do not count.
koala_connections() {
    {
        ps -A -o pid= -o ppid= || exit 0
        koala_marked
        echo connections
        ss -tinp || exit 0
        echo end
    } 2>/dev/null | awk -v root="$$" -v least="$1" '
        function plain(end) {
            gsub(/\[|\]|::ffff:/, "", end)
            return end
        }
        function told() {
            if (ours) print plain(near), plain(far), sent + 0, received + 0
            ours = 0
        }
        $1 == "connections" && !listed {
            listed = 1
            for (each in parent) {
                at = each
                for (depth = 0; at in parent && at != root && depth < 100; depth++) at = parent[at]
                if (at == root) below[each] = depth
            }
            next
        }
        $1 == "marked" && !listed { marked[$2] = 1; next }
        !listed { parent[$1] = $2; next }
        $1 == "end" { told(); print "whole"; exit }
        /^[A-Z]/ {
            told()
            near = $4; far = $5; sent = received = 0
            rest = $0
            launcher = 0
            while (match(rest, /pid=[0-9]+/)) {
                holder = substr(rest, RSTART + 4, RLENGTH - 4)
                if (holder in marked || holder in below && below[holder] >= least) ours = 1
                else if (holder in below && below[holder] > 0) launcher = 1
                rest = substr(rest, RSTART + RLENGTH)
            }
            if (launcher) ours = 0
        }
        {
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^bytes_acked:/) sent = substr($i, 13)
                else if ($i ~ /^bytes_received:/) received = substr($i, 16)
            }
        }'
}

# Read the record of one node. It begins with the start of the counter and its last look, in seconds since the boot.
koala_count_once() {
    koala_found=$(koala_connections "$koala_depth")
    read -r koala_looked _ </proc/uptime
    { printf 'time %s %s\n%s\n' "$koala_began" "$koala_looked" "$koala_found" >"$koala_counts.new"; } 2>/dev/null &&
        mv -f "$koala_counts.new" "$koala_counts" 2>/dev/null
}

# Print the places of the other components, from koala_value with the nodes of all: a line for each node name and each
# of its addresses.
koala_peers() {
    printf '%s\n' "$koala_value" | tr ';' '\n' | sed "$((koala_component + 1))d" | tr ',' '\n' |
        while IFS= read -r koala_peer; do
            printf '%s\n' "$koala_peer"
            getent ahosts "$koala_peer" 2>/dev/null
        done | sed -n 's/^\([^ ]\{1,\}\).*/peer \1/p' | sort -u
}

# Print the traffic since the last report, summed over all nodes: seconds since the start, seconds of this report, bytes
# sent, bytes received, connections. A connection between two ranks of the component has both its ends here.
koala_sum_traffic() {
    printf '%s\n' "$koala_with"
    cat "$koala_home/.traffic-before" 2>/dev/null
    for koala_one in "$koala_home"/.traffic-*-*; do
        case $koala_one in
        *.new) ;;
        *) if [ -f "$koala_one" ]; then
            printf 'node %s\n' "${koala_one##*/}"
            cat "$koala_one"
        fi ;;
        esac
    done
    echo end
}

koala_report_traffic() {
    koala_sum_traffic 2>/dev/null | awk -v kept="$koala_home/.traffic-before" -v loopback="$1" '
        $1 == "before" { if (NF == 3) was_at[$2] = $3; else { was_sent[$2 " " $3] = $4; was_received[$2 " " $3] = $5 } }
        $1 == "node" { node = $2; nodes++; wholes += whole; whole = 0; next }
        $1 == "whole" { whole = 1; next }
        $1 == "time" {
            since = node in was_at ? was_at[node] : $2
            over += $3 - since
            elapsed = $3 - $2
            now_at[node] = $3
            next
        }
        $1 == "end" { wholes += whole; next }
        $1 == "peer" { peer[$2] = some = 1; next }
        NF == 4 && $1 != "before" { sent[$1 " " $2] = $3; received[$1 " " $2] = $4; near[$1] = 1 }
        END {
            if (nodes == 0 || over <= 0) exit
            if (wholes < nodes) { print "unmeasured"; exit }
            printf "" >kept
            for (each in now_at) print "before", each, now_at[each] >kept
            for (each in sent) {
                split(each, ends, " ")
                if (ends[2] in near) continue
                host = ends[2]
                sub(/:[0-9]+$/, "", host)
                if (host ~ /^(127\.|::1$)/) { if (!loopback) continue }
                else if (some && !(host in peer)) continue
                connections++
                bytes_sent += sent[each] - was_sent[each]
                bytes_received += received[each] - was_received[each]
                print "before", each, sent[each], received[each] >kept
            }
            printf "%.2f %.2f %.0f %.0f %d\n", elapsed, over / nodes, bytes_sent, bytes_received, connections
        }'
}

koala_report_once() {
    # Many applications end before the first report.
    if [ "$koala_reports" -eq 1 ]; then
        koala_prepare_report
    fi
    if [ -x "$(command -v ss)" ] && [ -x "$(command -v awk)" ] && [ -x "$(command -v ps)" ]; then
        koala_report=$(koala_report_traffic "$koala_loopback" 2>/dev/null)
    else
        koala_report=missing
    fi
    if [ -n "$koala_report" ]; then
        koala_put "outbox/traffic-$(printf %02d "$koala_reports")" "$koala_report"
    fi
    case $koala_report in
    missing) exit 0 ;;
    esac
}

# Components on one machine reach each other by its loopback; elsewhere loopback traffic stays within the component.
koala_prepare_report() {
    koala_loopback=
    koala_go_value KOALA_NODES
    case $koala_value in
    *127.* | *localhost*) koala_loopback=1 ;;
    esac
    koala_with=
    if [ "$koala_job_type" != mpi ]; then
        koala_with=$(koala_peers)
    fi
}

# koala_follow_traffic WHO: be the counter of a node, the collector of the component, or both in one.
koala_follow_traffic() {
    koala_later_s=0
    if [ "$1" = collector ]; then
        # A little later than the counters.
        koala_later_s=1
    else
        koala_counts=$koala_home/.traffic-$koala_host-$$
        read -r koala_began _ </proc/uptime || exit 0
    fi
    koala_counted_s=0
    koala_next_s=$koala_traffic_first_s
    koala_reports=0
    while [ "$koala_reports" -lt "$koala_traffic_reports" ]; do
        koala_sleep_until "$((koala_next_s + koala_later_s))"
        koala_next_s=$((koala_next_s * 2))
        koala_reports=$((koala_reports + 1))
        [ "$1" = collector ] || koala_count_once
        [ "$1" = counter ] || koala_report_once
    done
}

koala_has_other_components() {
    if [ -z "$koala_components" ]; then
        koala_go_value KOALA_COMPONENTS
        koala_components=$koala_value
    fi
    [ "$koala_components" -gt 1 ] 2>/dev/null
}

# koala_counting WHO DEPTH: follow the traffic in the background, if there are other components. The application's
# processes are this far below the script.
koala_counting() {
    koala_depth=${2-0}
    if koala_has_other_components; then
        koala_beside counted "$1"
        koala_counting_process=$!
    fi
}

# Follow the traffic of an application that the script itself starts, on this node. What a plain application starts on
# other nodes is not seen.
koala_count_here() {
    if [ "$koala_job_type" = mpi ] || ! koala_has_other_components; then
        return 0
    fi
    if [ "$koala_job_type" = torchrun ]; then
        koala_go_value KOALA_TORCHRUN_WORKERS
        [ -z "$koala_value" ] || return 0
    elif koala_has_several_nodes; then
        koala_put outbox/traffic-01 several
        return 0
    fi
    koala_counting both 1
}

koala_stop_counting() {
    if [ -n "$koala_counting_process" ]; then
        koala_end_beside counted "$koala_counting_process"
        koala_counting_process=
    fi
}
