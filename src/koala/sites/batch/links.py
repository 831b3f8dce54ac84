"""How input files appear at a batch site: as links into its file area, made by a text for ``sh``, and nowhere else.

The rules are those of ``koala.sites.local.staging``, which keeps them where this process sees the files itself.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence

from koala.model.launch import WORK, Link
from koala.model.messages import Token
from koala.sites.batch.scripts.directory import EXIT_NO_DIRECTORY, FILES

# How many links may lead from one to the next.
LINK_HOPS_MAX = 40

# koala_real PATH: sets koala_path to where it really is; false where it is nowhere.
# koala_source PATH: sets koala_path to a file of the area, or says what is wrong with it.
# koala_destination NAME SOURCE: true if the link may be made; koala_there says that it is there.
_FUNCTIONS = """
koala_real() {
    koala_path=$1
    koala_hops=0
    while [ -h "$koala_path" ]; do
        koala_hops=$((koala_hops + 1))
        if [ "$koala_hops" -gt @HOPS@ ]; then return 1; fi
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
koala_is_below() { case $1 in "$2"/*) return 0 ;; esac; return 1; }
koala_complain() {
    koala_trouble=yes
    koala_mark trouble "$1" "$2"
}
koala_source() {
    koala_real "$koala_files/$1" || { koala_complain missing "$2"; return 1; }
    koala_is_below "$koala_path" "$koala_files" || { koala_complain outside "$2"; return 1; }
    [ -e "$koala_path" ] || { koala_complain missing "$2"; return 1; }
}
koala_destination() {
    koala_there=
    koala_above=$koala_work/$1
    koala_above=${koala_above%/*}
    while [ ! -e "$koala_above" ] && [ ! -h "$koala_above" ]; do koala_above=${koala_above%/*}; done
    koala_wanted=$2
    koala_real "$koala_above" || { koala_complain astray "$3"; return 1; }
    if [ "$koala_path" != "$koala_work" ] && ! koala_is_below "$koala_path" "$koala_work"; then
        koala_complain astray "$3"
        return 1
    fi
    if [ -h "$koala_work/$1" ] && [ "$(readlink "$koala_work/$1")" = "$koala_wanted" ]; then
        koala_there=yes
    elif [ -e "$koala_work/$1" ] || [ -h "$koala_work/$1" ]; then
        koala_complain taken "$3"
        return 1
    fi
}
koala_check() { koala_source "$1" "$3" && koala_destination "$2" "$koala_path" "$3"; }
koala_link() {
    koala_check "$1" "$2" "$3" || return 1
    if [ -z "$koala_there" ]; then
        koala_above=$koala_work/$2
        mkdir -p "${koala_above%/*}" && ln -s "$koala_wanted" "$koala_above"
    fi
}
"""


def stage(token: Token, links: Sequence[Link]) -> str:
    """Text that makes the links in a component's workspace: all are checked before the first is made, and making
    them again changes nothing. It stands where the components are.

    Section ``trouble WHAT INDEX`` for the first link that cannot be made; then ``$koala_trouble`` is set.
    """
    if not links:
        return ""
    calls = []
    for call in ("koala_check", "koala_link"):
        for index, link in enumerate(links):
            words = shlex.quote(posixpath.normpath(link.source)), shlex.quote(posixpath.normpath(link.destination))
            if posixpath.normpath(link.destination) == ".":
                calls.append(f"koala_complain astray {index}")
            else:
                calls.append(f"{call} {words[0]} {words[1]} {index}")
    checks = " &&\n".join(calls)
    return (
        f"{_FUNCTIONS.replace('@HOPS@', str(LINK_HOPS_MAX))}koala_trouble=\n"
        f"koala_files=$(CDPATH='' cd -P ../{FILES} && pwd -P) || exit {EXIT_NO_DIRECTORY}\n"
        f"koala_work=$(CDPATH='' cd -P {token}/{WORK} 2>/dev/null && pwd -P)\n"
        'if [ -z "$koala_work" ]; then\n    koala_mark lost\n    koala_trouble=yes\nelse\n'
        f"{checks} || koala_trouble=yes\nfi\n"
    )


def complaint(what: str, link: Link) -> str:
    """A section ``trouble`` in words, with what to do."""
    source, destination = repr(link.source), repr(posixpath.normpath(link.destination))
    match what:
        case "missing":
            return f"input file {source} is not in the site's file area; bring it there first"
        case "outside":
            return f"input file {source} leads out of the site's file area; register it there"
        case "taken":
            return f"{destination} is taken in the component's directory; choose another path"
    return f"{destination} leads out of the component's directory; choose another path"
