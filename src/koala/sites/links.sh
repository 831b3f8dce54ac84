# shellcheck shell=sh
# Input files appear in a component's workspace as links into the site's file area, and nowhere else. All links are
# checked before the first is made, and making them again changes nothing.
#
# A script defines koala_links COMMAND, which calls the command with the source, the destination and the number of each
# link until one fails, and sets koala_hops_max. The first link that cannot be made is told in a section: trouble, what
# is wrong, its number.

: "${koala_hops_max?}"

# koala_stage TOKEN: make the links; koala_trouble says that they cannot be made.
koala_stage() {
    koala_files=$(CDPATH='' cd -P ../files && pwd -P) || exit 74
    koala_work=$(CDPATH='' cd -P "$1/workspace" 2>/dev/null && pwd -P)
    if [ -z "$koala_work" ]; then
        koala_mark lost
        koala_trouble=yes
        return
    fi
    # shellcheck disable=SC2034  # whoever stages reads it
    { koala_links koala_check && koala_links koala_link; } || koala_trouble=yes
}

# koala_check SOURCE DESTINATION NUMBER: whether the link may be made; koala_there says that it is there.
koala_check() {
    koala_source "$1" "$3" && koala_destination "$2" "$koala_path" "$3"
}

# koala_link SOURCE DESTINATION NUMBER: make it.
koala_link() {
    koala_check "$1" "$2" "$3" || return 1
    if [ -z "$koala_there" ]; then
        koala_above=$koala_work/$2
        { mkdir -p "${koala_above%/*}" && ln -s "$koala_wanted" "$koala_above"; } || koala_unlinked "$3"
    fi
}

# koala_unlinked NUMBER: a link could not be made. Where another can be made, it is for its path; else nothing can be
# written there.
koala_unlinked() {
    koala_try=$koala_work/.koala.try.$$
    if ln -s "$koala_wanted" "$koala_try" && rm "$koala_try"; then
        koala_complain unlinkable "$1"
    else
        koala_complain unwritable "$1"
    fi
}

# koala_complain WHAT NUMBER
koala_complain() {
    koala_mark trouble "$1" "$2"
    return 1
}

# koala_source PATH NUMBER: set koala_path to a file of the area, or say what is wrong with it.
koala_source() {
    koala_real "$koala_files/$1" || koala_complain missing "$2" || return 1
    koala_is_below "$koala_path" "$koala_files" || koala_complain outside "$2" || return 1
    [ -e "$koala_path" ] || koala_complain missing "$2"
}

# koala_destination NAME SOURCE NUMBER: whether a link to the source may stand there.
koala_destination() {
    koala_there=
    koala_wanted=$2
    if [ "$1" = . ]; then
        koala_complain astray "$3" || return 1
    fi
    koala_above=$koala_work/$1
    koala_above=${koala_above%/*}
    while [ ! -e "$koala_above" ] && [ ! -h "$koala_above" ]; do
        koala_above=${koala_above%/*}
    done
    koala_real "$koala_above" || koala_complain astray "$3" || return 1
    [ "$koala_path" = "$koala_work" ] || koala_is_below "$koala_path" "$koala_work" ||
        koala_complain astray "$3" || return 1
    if [ -h "$koala_work/$1" ] && [ "$(readlink "$koala_work/$1")" = "$koala_wanted" ]; then
        koala_there=yes
    elif [ -e "$koala_work/$1" ] || [ -h "$koala_work/$1" ]; then
        koala_complain taken "$3"
    fi
}

# koala_is_below PATH DIRECTORY
koala_is_below() {
    case $1 in
    "$2"/*) return 0 ;;
    esac
    return 1
}

# koala_real PATH: set koala_path to where it really is; false where it is nowhere.
koala_real() {
    koala_path=$1
    koala_hops=0
    while [ -h "$koala_path" ]; do
        koala_hops=$((koala_hops + 1))
        if [ "$koala_hops" -gt "$koala_hops_max" ]; then
            return 1
        fi
        koala_target=$(readlink "$koala_path") || return 1
        case $koala_target in
        /*) koala_path=$koala_target ;;
        *) koala_path=${koala_path%/*}/$koala_target ;;
        esac
    done
    if [ -d "$koala_path" ]; then
        koala_path=$(CDPATH='' cd -P -- "$koala_path" 2>/dev/null && pwd -P)
    else
        koala_name=${koala_path##*/}
        koala_path=$(CDPATH='' cd -P -- "${koala_path%/*}" 2>/dev/null && pwd -P) || return 1
        koala_path=$koala_path/$koala_name
    fi
}
