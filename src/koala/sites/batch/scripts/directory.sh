# shellcheck shell=sh
# Functions for the component directories of a batch site.
#
# A script sets koala_root, the work directory, and calls koala_enter before the others, which stand in the directory
# of all components. Each works after a kill of an earlier script at any point, and may be repeated. Files appear
# whole, by rename, or by link where the first one must stand. What an application did to its own directory must not
# hold up a script: nothing is read there that is not a plain file, and no more than the limits that stand in front.
#
# The frame of every script gives koala_mark WORDS..., which begins a section of the output, and koala_new, a word for
# the names of files that are being written.

: "${koala_root?}" "${koala_new?}" "${koala_record_bytes?}" "${koala_note_bytes?}" "${koala_exit_bytes?}"
: "${koala_overlong?}" "${koala_nodes_bytes?}" "${koala_nodes_max?}" "${koala_mails_max?}"

koala_newline='
'

# ------------------------------------------------------------------------------------------------------- files

# koala_plain FILE: whether it is a file, and not something that could hold up who opens it.
koala_plain() {
    [ -f "$1" ] && [ ! -h "$1" ]
}

# koala_head FILE BYTES: so much of it, and one byte more, so that whoever reads it notices that it is longer.
koala_head() {
    head -c "$(($2 + 1))" "$1" 2>/dev/null
}

# koala_read FILE: its first line, in koala_line.
koala_read() {
    koala_line=$(koala_head "$1" "$koala_note_bytes" | tr -d '\0')
    koala_line=${koala_line%%"$koala_newline"*}
}

# koala_show NAME FILE BYTES: it as a section, if it is there.
koala_show() {
    if koala_plain "$2"; then
        koala_mark "$1"
        koala_head "$2" "$3"
    fi
}

# koala_place FRESH NAME: a fresh file takes a name, whatever has it now.
koala_place() {
    if [ -d "$2" ]; then
        rm -rf "$2"
    fi
    mv -f "$1" "$2"
}

# koala_first FRESH NAME: a fresh file takes a name that is free; koala_placed says that it did.
koala_first() {
    koala_placed=
    if [ ! -e "$2" ] && ln "$1" "$2" 2>/dev/null; then
        koala_placed=yes
    fi
    rm -f "$1"
}

# koala_put DIRECTORY NAME TEXT: write a file, whatever has its name now.
koala_put() {
    printf %s "$3" >"$1/.$2.$koala_new" && koala_place "$1/.$2.$koala_new" "$1/$2"
}

# koala_put_first DIRECTORY NAME TEXT: write a file where there is none of that name.
koala_put_first() {
    printf %s "$3" >"$1/.$2.$koala_new" && koala_first "$1/.$2.$koala_new" "$1/$2"
}

# koala_home DIRECTORY: make it, in place of anything else that has its name.
koala_home() {
    koala_clear "$1"
    if [ ! -d "$1" ]; then
        mkdir -p "$1" || return
    fi
}

# koala_clear DIRECTORY: remove anything else that has its name.
koala_clear() {
    if [ -h "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then
        rm -rf "$1"
    fi
}

# ------------------------------------------------------------------------------------------ the work directory

koala_no_directory() {
    printf '%s is not there, or is not the work directory any more\n' "$koala_root" >&2
    exit 74
}

# Go to the components. Without the owner's file this is not the work directory: perhaps it is not mounted.
koala_enter() {
    umask 077
    { cd "$koala_root" && [ -f owner ] && cd components; } || koala_no_directory
}

# koala_open OWNER MARK: make the work directory where there is none, claim it, name all components, and show those
# that have not ended. The first mark stands, but for an empty one, which a power cut of a file server left. In another owner's
# directory nothing is changed.
koala_open() {
    umask 077
    if [ ! -d "$koala_root/components" ] || [ ! -d "$koala_root/files" ]; then
        mkdir -p "$koala_root/components" "$koala_root/files" || exit 74
    fi
    cd -P "$koala_root" || exit 74
    koala_put_first . owner "$1" || exit 74
    koala_mark root
    pwd -P
    koala_line=
    if koala_plain owner; then
        koala_read owner
        koala_mark owner
        printf '%s' "$koala_line"
    fi
    if [ "$koala_line" != "$1" ]; then
        return
    fi
    if [ -f mark ] && [ ! -s mark ]; then
        rm -f mark
    fi
    koala_put_first . mark "$2" || exit 74
    koala_show mark mark "$koala_note_bytes"
    cd components || exit 74
    # A script that a killed daemon left may be at one: it shall find all of it or nothing.
    for koala_each in .*.new.*; do
        if [ -d "$koala_each" ]; then
            mv "$koala_each" "$koala_each.gone.$koala_new" 2>/dev/null
        fi
    done
    for koala_each in .*.gone.*; do
        if [ -d "$koala_each" ]; then
            rm -rf "$koala_each"
        fi
    done
    koala_mark known
    printf '%s\n' *
    for koala_each in *; do
        if ! koala_plain "$koala_each/ended.json" && koala_plain "$koala_each/record.json"; then
            koala_show_component "$koala_each"
        fi
    done
}

# -------------------------------------------------------------------------------------------------- components

# koala_show_component TOKEN: all that is on record of it.
koala_show_component() {
    koala_mark component "$1"
    koala_show record.json "$1/record.json" "$koala_record_bytes"
    for koala_name in batch abort released reservation ended.json; do
        koala_show "$koala_name" "$1/$koala_name" "$koala_note_bytes"
    done
    for koala_name in go ready; do
        if [ -e "$1/$koala_name" ]; then
            koala_mark "$koala_name"
        fi
    done
}

# koala_is_known TOKEN: whether it was accepted, or has ended.
koala_is_known() {
    koala_plain "$1/ended.json" || koala_plain "$1/record.json"
}

# koala_make TOKEN SCRIPT SITE RECORD: accept a component, and submit it where koala_submits is set; one that is known is
# shown instead. It is accepted once its record is there.
koala_make() {
    if koala_is_known "$1"; then
        koala_show_component "$1"
        return
    fi
    koala_clear "$1"
    if [ -d "$1" ]; then
        koala_make_again "$1" "$2" "$3" "$4" || exit 74
    elif ! koala_make_new ".$1.new.$koala_new" "$1" "$2" "$3" "$4"; then
        rm -rf ".$1.new.$koala_new"
        exit 74
    fi
    if [ -n "${koala_submits-}" ]; then
        koala_submit_now "$1"
    fi
}

# koala_make_new FRESH TOKEN SCRIPT SITE RECORD: a fresh directory takes the name once all is in it. Where another
# script was first, mv puts it into that one's directory.
koala_make_new() {
    mkdir -p "$1/workspace" "$1/inbox" "$1/outbox" && printf %s "$3" >"$1/script" && printf %s "$4" >"$1/site" &&
        printf %s "$5" >"$1/record.json" && mv "$1" "$2" || return
    if [ -d "$2/$1" ]; then
        rm -rf "${2:?}/$1"
        return 1
    fi
}

# koala_make_again TOKEN SCRIPT SITE RECORD: what is there has no record.
koala_make_again() {
    mkdir -p "$1/workspace" "$1/inbox" "$1/outbox" && koala_put "$1" script "$2" && koala_put "$1" site "$3" &&
        koala_put "$1" record.json "$4"
}

# koala_submit TOKEN: submit a component that is there, by koala_submission, unless it is to be no more.
koala_submit() {
    if [ -e "$1/ended.json" ] || [ -e "$1/abort" ]; then
        koala_mark barred
    else
        koala_submit_now "$1"
    fi
}

koala_submit_now() {
    koala_answer=$1/.batch.$koala_new
    (koala_submission) >"$koala_answer"
    koala_code=$?
    koala_mark submitted "$koala_code"
    while IFS= read -r koala_line || [ -n "$koala_line" ]; do
        printf '%s\n' "$koala_line"
    done <"$koala_answer"
    if [ "$koala_code" -eq 0 ]; then
        mv -f "$koala_answer" "$1/batch"
    else
        rm -f "$koala_answer"
    fi
}

# koala_abort TOKEN VERDICT END: from now on the application must not start, and koala_cancel ends its job; of several
# verdicts the first stands. The end is that of a component that nobody knows.
koala_abort() {
    if ! koala_is_known "$1"; then
        koala_end "$1" "$3"
    elif ! koala_plain "$1/ended.json" && [ ! -e "$1/abort" ]; then
        koala_put_first "$1" abort "$2"
    fi
    koala_show_component "$1"
    if ! koala_plain "$1/ended.json"; then
        (koala_cancel)
        koala_mark cancelled "$?"
    fi
}

# koala_ask TOKEN END: show a component; the end is that of one that nobody knows.
koala_ask() {
    if ! koala_is_known "$1"; then
        koala_end "$1" "$2"
    fi
    koala_show_component "$1"
}

# koala_settle TOKEN END: put an end on record, and say so.
koala_settle() {
    koala_end "$1" "$2"
    if koala_plain "$1/ended.json"; then
        koala_mark settled "$1"
    fi
}

# koala_end TOKEN END: put an end on record, if need be in a new directory.
koala_end() {
    if ! koala_put_end "$1" "$2" 2>/dev/null; then
        mv "$1" ".$1.gone.$koala_new"
        koala_put_end "$1" "$2"
    fi
}

# The id of a process that never was keeps a submission that comes late from starting anything.
koala_put_end() {
    koala_home "$1" && koala_put "$1" ended.json "$2" || return
    if [ ! -e "$1/pid" ]; then
        printf '' >"$1/.pid.$koala_new" && { koala_first "$1/.pid.$koala_new" "$1/pid" || :; }
    fi
}

# koala_forget TOKEN: take a directory out of sight at once, and then remove it.
koala_forget() {
    koala_gone=.$1.gone.$koala_new
    if [ -e "$1" ] || [ -h "$1" ]; then
        mv "$1" "$koala_gone" || exit 74
    fi
    koala_mark gone
    rm -rf "$koala_gone" 2>/dev/null || {
        chmod -R u+rwx "$koala_gone" 2>/dev/null
        rm -rf "$koala_gone"
    }
}

# ------------------------------------------------------------------------------------------ what they get

# koala_release TOKEN GO TIME: open the barrier, unless it is open or the component is to end: first the links, by
# koala_stage TOKEN, then the time, then the barrier. It stays shut where koala_stage sets koala_trouble. Once it is
# open the application may do with the directory what it likes.
koala_release() {
    koala_trouble=
    koala_placed=
    if koala_is_usable "$1" && [ ! -e "$1/ended.json" ] && [ ! -e "$1/abort" ] && [ ! -e "$1/go" ]; then
        koala_stage "$1"
        if [ -z "$koala_trouble" ]; then
            koala_put "$1" released "$3" && koala_put_first "$1" go "$2"
        fi
    fi
    if [ -n "$koala_placed" ] || [ -e "$1/go" ]; then
        koala_mark released
        if koala_plain "$1/released"; then
            koala_head "$1/released" "$koala_note_bytes"
        fi
    elif ! koala_is_usable "$1"; then
        koala_mark unseen
    fi
}

# koala_is_usable TOKEN: whether its directory can be seen, and written.
koala_is_usable() {
    [ -d "$1" ] && [ ! -h "$1" ] && [ -r "$1" ] && [ -w "$1" ] && [ -x "$1" ]
}

# koala_deliver TOKEN NAME: put what koala_letter prints into a component's inbox.
koala_deliver() {
    if [ ! -d "$1" ]; then
        koala_mark unknown
    elif koala_plain "$1/ended.json" || [ -e "$1/abort" ] || [ -e "$1/inbox/$2" ]; then
        :
    elif [ ! -d "$1/inbox" ]; then
        koala_mark lost
    else
        { koala_letter >"$1/inbox/.$2.$koala_new" && mv -f "$1/inbox/.$2.$koala_new" "$1/inbox/$2"; } || exit 74
    fi
}

# ---------------------------------------------------------------------------------------------- what they tell

# koala_new_mail TOKEN NAMES...: whether the outbox holds other mail than this.
koala_new_mail() {
    koala_known=" $* "
    for koala_file in "$1"/outbox/*; do
        case $koala_known in
        *" ${koala_file##*/} "*) ;;
        *)
            if [ -e "$koala_file" ]; then
                return 0
            fi
            ;;
        esac
    done
    return 1
}

# koala_await PAUSES SECONDS: until koala_shows is true, but for no more than so many pauses; where sleep knows only
# whole seconds, for one of them. Only the pauses are processes.
koala_await() {
    koala_pauses=$1
    until [ "$koala_pauses" -le 0 ] || koala_shows; do
        koala_pauses=$((koala_pauses - 1))
        sleep "$2" 2>/dev/null || {
            sleep 1
            koala_pauses=0
        }
    done
}

# koala_refresh TOKENS...: the client of a file server may remember for a minute what was in a directory; when it makes
# something there itself, it learns what else is there.
koala_refresh() {
    for koala_each in "$@"; do
        if [ -d "$koala_each" ] && [ ! -h "$koala_each" ]; then
            {
                printf '' >"$koala_each/.refresh.$koala_new"
                rm -f "$koala_each/.refresh.$koala_new"
            } 2>/dev/null
        fi
    done
}

# koala_inspect TOKENS...: what these components' files say. Only what is read of them takes a process.
koala_inspect() {
    koala_mark inspected
    for koala_each in "$@"; do
        if koala_plain "$koala_each/record.json"; then
            koala_inspect_files "$koala_each"
            koala_inspect_mail "$koala_each"
        elif koala_lost "$koala_each"; then
            printf '%s lost\n' "$koala_each"
        fi
    done
}

koala_inspect_files() {
    if [ -e "$1/ready" ]; then
        printf '%s ready\n' "$1"
    fi
    if koala_plain "$1/exit"; then
        # What cannot be in a variable counts all the same.
        koala_line=$(koala_head "$1/exit" "$koala_exit_bytes" | tr -c ' -~\n' '?')
        if [ "${#koala_line}" -gt "$koala_exit_bytes" ]; then
            koala_line=$koala_overlong
        fi
        printf '%s exit %s\n' "$1" "${koala_line%%"$koala_newline"*}"
        koala_inspect_nodes "$1"
        koala_inspect_last_line "$1"
        koala_inspect_usage "$1"
    fi
    if koala_plain "$1/abort"; then
        koala_read "$1/abort"
        printf '%s abort %s\n' "$1" "$koala_line"
    fi
}

# koala_inspect_mail TOKEN: the names of mail in its outbox, of more than koala_mails_max some.
koala_inspect_mail() {
    koala_left=$koala_mails_max
    for koala_file in "$1"/outbox/*; do
        case ${koala_file##*/} in
        *[!a-z0-9-]*) ;;
        *)
            if koala_plain "$koala_file"; then
                printf '%s mail %s\n' "$1" "${koala_file##*/}"
                koala_left=$((koala_left - 1))
            fi
            ;;
        esac
        if [ "$koala_left" -eq 0 ]; then
            return
        fi
    done
}

# koala_inspect_nodes TOKEN: the nodes that a component has run on, a line each of name and processors.
koala_inspect_nodes() {
    if koala_plain "$1/nodes"; then
        koala_head "$1/nodes" "$koala_nodes_bytes" | koala_tell_nodes "$1"
    fi
}

koala_tell_nodes() {
    koala_left=$koala_nodes_max
    while [ "$koala_left" -gt 0 ] && { IFS=' ' read -r koala_node koala_line || [ -n "$koala_node" ]; }; do
        printf '%s node %s\n' "$1" "$koala_node"
        koala_left=$((koala_left - 1))
    done
}

# koala_inspect_last_line TOKEN: what an application that failed wrote last to its standard error.
koala_inspect_last_line() {
    if koala_plain "$1/last-line"; then
        koala_read "$1/last-line"
        printf '%s stderr %s\n' "$1" "$koala_line"
    fi
}

# koala_inspect_usage TOKEN: what its application has used.
koala_inspect_usage() {
    if koala_plain "$1/usage"; then
        koala_read "$1/usage"
        printf '%s usage %s\n' "$1" "$koala_line"
    fi
}

# koala_lost TOKEN: whether a component's directory is surely of no use any more. That a file cannot be seen is not
# enough: a file server in trouble says so of all files. So the directory must be one that can be listed, and the file
# not be in the list. Where the work directory itself cannot be read, the script ends.
koala_lost() {
    { [ -f "$koala_root/owner" ] && koala_names=$(ls -a 2>/dev/null); } || koala_no_directory
    if [ -h "$1" ]; then
        return 0
    fi
    if [ ! -e "$1" ]; then
        koala_unlisted "$1"
        return
    fi
    if [ ! -d "$1" ] || [ ! -r "$1" ] || [ ! -x "$1" ]; then
        return 0
    fi
    koala_names=$(ls -a "$1" 2>/dev/null) || return 1
    if koala_plain "$1/record.json"; then
        return 1
    fi
    if [ -e "$1/record.json" ] || [ -h "$1/record.json" ]; then
        return 0
    fi
    koala_unlisted record.json
}

# koala_unlisted NAME: whether koala_names, a name a line, is without it.
koala_unlisted() {
    case "
$koala_names
" in
    *"
$1
"*) return 1 ;;
    esac
}

# koala_mail TOKEN NAME BYTES: a piece of mail of an outbox, if it is there.
koala_mail() {
    if koala_plain "$1/outbox/$2"; then
        koala_mark mail
        head -c "$3" "$1/outbox/$2"
    fi
}

# koala_output TOKEN OFFSET BYTES PATHS...: what stands in the first of these files, from an offset on.
koala_output() {
    cd "$1" 2>/dev/null || {
        koala_mark unknown
        cd / || exit 74
    }
    koala_start=$(($2 + 1))
    koala_bytes=$3
    shift 3
    for koala_file in "$@"; do
        if koala_plain "$koala_file"; then
            koala_mark output
            tail -c "+$koala_start" "$koala_file" | head -c "$koala_bytes"
            return
        fi
    done
}

# koala_show_nodes TOKEN BYTES: a component's nodes and its addresses, once it is ready.
koala_show_nodes() {
    if [ ! -e "$1/ready" ]; then
        return
    fi
    koala_show ready "$1/ready" "$koala_note_bytes"
    for koala_name in nodes addresses; do
        if koala_plain "$1/$koala_name"; then
            koala_mark "$koala_name"
            head -c "$2" "$1/$koala_name"
        fi
    done
}
