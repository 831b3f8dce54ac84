# shellcheck shell=sh
# Checkpoints: the directory that moves with the job from run to run, and the requests to the application to save there.
# shellcheck disable=SC2154  # other parts of the script set them

# Restore the checkpoint of the previous run, which is an archive until here. It is unpacked aside and then renamed, so
# that the directory appears as a whole or not at all. Unfinished files, which end in .part, are left out.
koala_restore() {
    cd "$koala_home/workspace" || return
    if [ -h .koala-checkpoint ]; then
        rm -rf .koala-restored
        if ! { mkdir .koala-restored && tar -xof .koala-checkpoint -C .koala-restored; }; then
            echo 'koala: its checkpoint cannot be unpacked: is the disk full? It is kept where it is' >&2
            return 1
        fi
        find .koala-restored -name '*.part' -prune -exec rm -rf '{}' +
        rm -rf "./$koala_checkpoint"
        mkdir -p "./$koala_checkpoint" && rmdir "./$koala_checkpoint" || return
        mv .koala-restored "./$koala_checkpoint" && rm -f .koala-checkpoint
        return
    fi
    mkdir -p "./$koala_checkpoint"
}

# Beside the application: ask it to save at intervals, shortly before the end of its walltime, and on request.
koala_watch_over_saving() {
    koala_watcher=
    if [ -n "$koala_checkpoint" ]; then
        koala_watch_saving &
        koala_watcher=$!
    fi
}

koala_stop_watching() {
    if [ -n "$koala_watcher" ]; then
        kill "$koala_watcher" 2>/dev/null
    fi
}

koala_watch_saving() {
    trap - TERM INT HUP
    koala_asked=0
    koala_heard=
    koala_began_s=$(date +%s)
    koala_next_s=$koala_every_s
    while sleep 1 && kill -0 "$$" 2>/dev/null; do
        koala_ran_s=$(($(date +%s) - koala_began_s))
        if [ -z "$koala_heard" ] && [ -e "$koala_home/save" ]; then
            koala_heard=yes
            koala_ask_to_save ' last'
        elif [ "$koala_last_save_s" -gt 0 ] && [ "$koala_ran_s" -ge "$koala_last_save_s" ]; then
            koala_last_save_s=0
            koala_ask_to_save ' last'
        elif [ "$koala_every_s" -gt 0 ] && [ "$koala_ran_s" -ge "$koala_next_s" ]; then
            koala_next_s=$((koala_ran_s + koala_every_s))
            koala_ask_to_save
        fi
    done
}

# Ask the application to save. A program may watch the number in the file instead of catching the signal, also on
# another node. The word after it shows that the program will be ended soon.
koala_ask_to_save() {
    koala_asked=$((koala_asked + 1))
    koala_put asked "$koala_asked${1-}"
    if [ -n "$koala_signal" ]; then
        for koala_pid in $(koala_catching "$$"); do
            koala_is_own "$koala_pid" || kill -s "$koala_signal" "$koala_pid" 2>/dev/null
        done
    fi
}

# True if a process is a shell of this script, such as the counter of traffic, or runs the script on a node. Such a
# shell catches signals for its own reasons, and would end.
koala_is_own() {
    case $(koala_words_of "$1") in
    "$(koala_words_of "$$")" | *"sh $koala_home/script "*) true ;;
    *) false ;;
    esac
}

koala_words_of() {
    tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline"
}

# Print the processes below a process that catch the signal. It would end any other, such as one that does not catch it
# yet.
koala_catching() {
    cat /proc/[0-9]*/status 2>/dev/null | awk -v top="$1" -v signal="$koala_signal_number" '
        /^Pid:/ { pid = $2 }
        /^PPid:/ { above[pid] = $2 }
        /^SigCgt:/ { caught[pid] = $2 }
        END {
            for (pid in caught) {
                mask = caught[pid]
                digit = substr(mask, length(mask) - int((signal - 1) / 4), 1)
                if (int((index("0123456789abcdef", digit) - 1) / 2 ^ ((signal - 1) % 4)) % 2 == 0)
                    continue
                up = above[pid]
                for (hops = 0; up + 0 > 1 && up != top && hops < 1000; hops++)
                    up = above[up]
                if (up == top)
                    print pid
            }
        }'
}
