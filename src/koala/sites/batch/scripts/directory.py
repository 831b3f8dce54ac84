"""What is done at a batch site, as texts for ``sh``: components' directories are made, looked at, told and buried.

Each text stands in the site's work directory, works after a kill of an earlier one at any point, and may be repeated.
Files appear whole, by rename or by link; where the first one must stand, by link. What an application did to its own
directory must not hold up a text: nothing is read there that is not a plain file. How input files appear is in
``koala.sites.batch.links``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from koala.model.launch import (
    ABORT,
    ADDRESSES,
    EXIT,
    GO,
    INBOX,
    MAIL_BYTES_MAX,
    NODES,
    OUTBOX,
    PID,
    READY,
    SCRIPT,
    SITE,
    WORK,
    Go,
)
from koala.model.messages import ComponentEnded, Token
from koala.sites.batch.scripts.framing import directory_word, printing
from koala.sites.component_directory import ENDED, RECORD, RELEASED, AbortRecord, AcceptanceRecord

# The files of a component's directory that only a site with a batch system has.
BATCH = "batch"  # what the batch system answered to the submission
RESERVATION = "reservation"  # what its job runs in, if anything
OWNER = "owner"  # which Koala uses the work directory
MARK = "mark"  # what it puts behind a token in the name of a job
COMPONENTS = "components"
FILES = "files"
# Hidden names of directories that are being removed hold this.
GONE = ".gone."

# The exit code of a script that cannot even begin.
EXIT_NO_DIRECTORY = 74
# Of a component's files a line is told that is no longer than so many characters; a longer one nobody of ours wrote.
_EXIT_WORDS_CHARACTERS = 100
_VERDICT_CHARACTERS = 4_096
# How long the pauses are between two looks for what is awaited, as a part of all patience, and at least; where
# ``sleep`` knows parts of a second.
NAP_SHARE = 0.1
NAP_LEAST_S = 0.05

# koala_plain FILE: whether it is a file, and not something that could hold up who opens it.
# koala_read FILE CHARACTERS: its first line, in koala_line; nothing where that is longer.
# koala_show NAME FILE: its first line as a section, if it is there.
# koala_place FRESH NAME: a fresh file takes a name, whatever has it now.
# koala_first FRESH NAME: a fresh file takes a name that is free.
# koala_unlisted NAME: whether koala_names, a name a line, is without it.
_FUNCTIONS = """
koala_plain() { [ -f "$1" ] && [ ! -h "$1" ]; }
koala_read() {
    koala_line=
    IFS= read -r koala_line <"$1"
    if [ "${#koala_line}" -gt "$2" ]; then koala_line=; fi
}
koala_show() {
    if koala_plain "$2"; then
        koala_line=
        IFS= read -r koala_line <"$2"
        koala_mark "$1"
        printf '%s' "$koala_line"
    fi
}
koala_place() {
    if [ -d "$2" ]; then rm -rf "$2"; fi
    mv -f "$1" "$2"
}
koala_first() {
    ln "$1" "$2" 2>/dev/null
    rm -f "$1"
}
koala_home() {
    if [ ! -d "$1" ] || [ -h "$1" ]; then
        rm -rf "$1"
        mkdir -p "$1" || return
    fi
}
koala_unlisted() {
    case "
$koala_names
" in
    *"
$1
"*) return 1 ;;
    esac
}
"""

# koala_lost TOKEN: whether a component's directory is surely of no use any more. That a file cannot be seen is not
# enough: a file server in trouble says so of all files. So the directory must be one that can be listed, and the file
# not be in the list. Where the place itself cannot be read, the script ends.
_LOST = f"""
koala_lost() {{
    [ -f "$koala_root/{OWNER}" ] && koala_names=$(ls -a 2>/dev/null) || koala_no_place
    if [ -h "$1" ]; then return 0; fi
    if [ ! -e "$1" ]; then
        koala_unlisted "$1"
        return
    fi
    if [ ! -d "$1" ] || [ ! -r "$1" ] || [ ! -x "$1" ]; then return 0; fi
    koala_names=$(ls -a "$1" 2>/dev/null) || return 1
    if koala_plain "$1/{RECORD}"; then return 1; fi
    if [ -e "$1/{RECORD}" ] || [ -h "$1/{RECORD}" ]; then return 0; fi
    koala_unlisted {RECORD}
}}
"""


def _enter(root: str) -> str:
    """Go where the components are. Without the owner's file this is not the place: perhaps it is not mounted."""
    words = "%s is not there, or is not the work directory any more"
    return (
        f"{_FUNCTIONS}umask 077\nkoala_root={shlex.quote(root)}\n"
        f"koala_no_place() {{ printf '{words}\\n' \"$koala_root\" >&2; exit {EXIT_NO_DIRECTORY}; }}\n"
        f'cd "$koala_root" && [ -f {OWNER} ] && cd {COMPONENTS} || koala_no_place\n'
    )


def _file(name: str, data: str) -> str:
    """Words that write a file under a fresh name."""
    return f'printf %s {shlex.quote(data)} >"{name}"'


# ---------------------------------------------------------------------------------------- the work directory


def open_work_directory(work_directory: str, owner: str, mark: str) -> str:
    """Make the work directory where there is none, claim it, and show all that has not ended. The first mark stands,
    but for an empty one, which a power cut of a file server left. In another owner's directory nothing is changed.

    Sections: ``root``, ``owner``, and in our own directory ``mark`` and those of ``_shown`` behind a section
    ``component TOKEN`` each.
    """
    place = directory_word(work_directory)
    return (
        f"{_FUNCTIONS}umask 077\n"
        f"mkdir -p {place} && cd -P {place} && mkdir -p {COMPONENTS} {FILES} || exit {EXIT_NO_DIRECTORY}\n"
        f"{_file('.owner.$koala_new', owner)} || exit {EXIT_NO_DIRECTORY}\n"
        f'koala_first ".owner.$koala_new" {OWNER}\n'
        "koala_mark root\npwd -P\n"
        f"koala_line=\nkoala_show owner {OWNER}\n"
        f'if [ "$koala_line" = {shlex.quote(owner)} ]; then\n'
        f"    if [ -f {MARK} ] && [ ! -s {MARK} ]; then rm -f {MARK}; fi\n"
        f"    {_file('.mark.$koala_new', mark)} || exit {EXIT_NO_DIRECTORY}\n"
        f'    koala_first ".mark.$koala_new" {MARK}\n'
        f"    koala_show mark {MARK}\n"
        f"    cd {COMPONENTS} || exit {EXIT_NO_DIRECTORY}\n"
        f"    for koala_each in .*{GONE}*; do\n"
        '        if [ -d "$koala_each" ]; then rm -rf "$koala_each"; fi\n'
        "    done\n"
        "    for koala_each in *; do\n"
        f'        if koala_plain "$koala_each/{ENDED}" || ! koala_plain "$koala_each/{RECORD}"; then continue; fi\n'
        f"{_shown('        ')}"
        "    done\n"
        "fi\n"
    )


def _shown(indent: str) -> str:
    """Shows one component ``$koala_each``, for ``RecordedComponent``."""
    names = (RECORD, BATCH, ABORT, RELEASED, RESERVATION, ENDED)
    lines = ['koala_mark component "$koala_each"']
    lines += [f'koala_show {name} "$koala_each/{name}"' for name in names]
    for name in (GO, READY):
        lines.append(f'if [ -e "$koala_each/{name}" ]; then koala_mark {name}; fi')
    return "".join(f"{indent}{line}\n" for line in lines)


def show(root: str, tokens: Sequence[Token]) -> str:
    """Show these components as ``open_work_directory`` does, also those that have ended."""
    return f"{_enter(root)}for koala_each in {' '.join(tokens)}; do\n{_shown('    ')}done\n"


# ----------------------------------------------------------------------------------------------- components


def make(root: str, record: AcceptanceRecord, script: str, site: str) -> str:
    """Accept a component, unless it is there. It is there once its record is."""
    token = record.launch.token
    fresh = [
        f"mkdir -p {WORK} {INBOX} {OUTBOX}",
        _file(".script.$koala_new", script),
        f'mv -f ".script.$koala_new" {SCRIPT}',
        _file(".site.$koala_new", site),
        f'mv -f ".site.$koala_new" {SITE}',
        _file(".record.$koala_new", msgspec.json.encode(record).decode()),
        f'koala_place ".record.$koala_new" {RECORD}',
    ]
    return (
        f"{_enter(root)}koala_each={token}\n"
        f'if ! koala_plain "$koala_each/{ENDED}" && ! koala_plain "$koala_each/{RECORD}"; then\n'
        f'    koala_home "$koala_each" || exit {EXIT_NO_DIRECTORY}\n'
        f'    (cd "$koala_each" && {" && ".join(fresh)}) || exit {EXIT_NO_DIRECTORY}\n'
        "    koala_made=yes\n"
        "else\n"
        "    koala_made=\n"
        "fi\n"
    )


def submit_if_made(submission: str) -> str:
    """After ``make``: show what was there, or submit what was made."""
    return f'if [ -n "$koala_made" ]; then\n{_submit(submission)}else\n{_shown("    ")}fi\n'


def submit(root: str, token: Token, submission: str) -> str:
    """Submit a component that is there, unless it is to be no more. Section: ``submitted CODE``."""
    barred = " || ".join(f'[ -e "$koala_each/{name}" ]' for name in (ENDED, ABORT))
    return (
        f"{_enter(root)}koala_each={token}\nif {barred}; then\n    koala_mark barred\nelse\n{_submit(submission)}fi\n"
    )


def _submit(submission: str) -> str:
    answer = f'"$koala_each/.{BATCH}.$koala_new"'
    return (
        f"    (\n{submission}    ) >{answer}\n"
        "    koala_code=$?\n"
        '    koala_mark submitted "$koala_code"\n'
        f"    cat {answer}\n"
        f'    if [ "$koala_code" -eq 0 ]; then mv -f {answer} "$koala_each/{BATCH}"; else rm -f {answer}; fi\n'
    )


def put_lines(root: str, lines: Mapping[tuple[Token, str], str | None]) -> str:
    """Write small files into components' directories; None removes one."""
    text = _enter(root)
    for (token, name), line in lines.items():
        if line is None:
            text += f"rm -f {token}/{name}\n"
            continue
        fresh = f"{token}/.{name}.$koala_new"
        text += f'{_file(fresh, line)} && koala_place "{fresh}" {token}/{name}\n'
    return text


def abort(root: str, token: Token, verdict: AbortRecord, unknown: ComponentEnded, cancel: str) -> str:
    """From now on the application must not start; of several aborts the first stands. One never heard of is buried.

    Sections: those of ``show``, and then ``cancelled CODE`` if it had to be.
    """
    fresh = f"{token}/.{ABORT}.$koala_new"
    verdict_text = msgspec.json.encode(verdict).decode()
    return (
        f"{_enter(root)}koala_each={token}\n"
        f"if koala_plain {token}/{ENDED}; then :\n"
        f"elif ! koala_plain {token}/{RECORD}; then\n{_bury(unknown)}"
        f'elif [ ! -e {token}/{ABORT} ]; then {_file(fresh, verdict_text)} && koala_first "{fresh}" {token}/{ABORT}\n'
        "fi\n"
        f"{_shown('')}"
        f"if ! koala_plain {token}/{ENDED}; then\n(\n{cancel})\nkoala_mark cancelled $?\nfi\n"
    )


def ask(root: str, unknown: Sequence[ComponentEnded]) -> str:
    """Show components that the driver does not watch; those never heard of are buried first."""
    text = _enter(root)
    for event in unknown:
        here = event.token
        text += (
            f"koala_each={here}\n"
            f"if ! koala_plain {here}/{ENDED} && ! koala_plain {here}/{RECORD}; then\n{_bury(event)}fi\n{_shown('')}"
        )
    return text


def bury(root: str, events: Sequence[ComponentEnded], before: Mapping[Token, str] | None = None) -> str:
    """Settle ends for good. Section ``buried TOKEN`` for each that could be; what is to be done ``before`` one must
    succeed first."""
    text = _enter(root)
    for event in events:
        put = f"{_bury(event)}if koala_plain {event.token}/{ENDED}; then koala_mark buried {event.token}; fi\n"
        first = (before or {}).get(event.token)
        text += f"if (\n{first}); then\n{put}fi\n" if first else put
    return text


def _bury(event: ComponentEnded) -> str:
    """Words that put an end on record, if need be in a new directory. The id of a process that never was keeps a
    submission that comes late from starting anything."""
    here = event.token
    write = _file(f"{here}/.{ENDED}.$koala_new", msgspec.json.encode(event).decode())
    put = (
        f'koala_home {here} && {write} && koala_place "{here}/.{ENDED}.$koala_new" {here}/{ENDED} '
        f'&& : >"{here}/.{PID}.$koala_new" && {{ koala_first "{here}/.{PID}.$koala_new" {here}/{PID} || :; }}'
    )
    return f'if ! {{ {put}; }} 2>/dev/null; then\n    mv {here} ".{here}{GONE}$koala_new"\n    {put}\nfi\n'


def forget(root: str, token: Token) -> str:
    """Take a directory out of sight at once, and then remove it. Section ``gone`` once it is out of sight."""
    gone = f'".{token}{GONE}$koala_new"'
    return (
        f"{_enter(root)}if [ -e {token} ] || [ -h {token} ]; then mv {token} {gone} || exit {EXIT_NO_DIRECTORY}; fi\n"
        f"koala_mark gone\nchmod -R u+rwx {gone} 2>/dev/null\nrm -rf {gone}\n"
    )


# ------------------------------------------------------------------------------------------- what they are told


def release(root: str, token: Token, go: Go, at: float, links: str) -> str:
    """Open the barrier, unless it is open or the component is to end: links first, then the time, then the barrier.

    Sections: ``released`` when the barrier is open, ``unseen`` when no directory can be seen; or what ``links`` says.
    """
    barred = " || ".join(f"[ -e {token}/{name} ]" for name in (ENDED, ABORT, GO))
    time, opened = f"{token}/.{RELEASED}.$koala_new", f"{token}/.{GO}.$koala_new"
    put_time = f'{_file(time, repr(at))} && koala_place "{time}" {token}/{RELEASED}'
    put_go = f'{_file(opened, go.text)} && koala_first "{opened}" {token}/{GO}'
    return (
        f"{_enter(root)}if [ ! -d {token} ]; then koala_mark unseen\n"
        f"elif ! {{ {barred}; }}; then\n{links}"
        f'    if [ -z "${{koala_trouble-}}" ]; then\n        {put_time} &&\n        {put_go}\n    fi\nfi\n'
        f"if [ -e {token}/{GO} ]; then koala_show released {token}/{RELEASED}; fi\n"
    )


def deliver(root: str, token: Token, name: str, data: bytes) -> str:
    """Mail for a component. Section ``unknown`` where none of it can be seen, ``lost`` where it has no inbox."""
    inbox, fresh = f"{token}/{INBOX}", f"{token}/{INBOX}/.{name}.$koala_new"
    return (
        f"{_enter(root)}if [ ! -d {token} ]; then koala_mark unknown\n"
        f"elif koala_plain {token}/{ENDED} || [ -e {token}/{ABORT} ] || [ -e {inbox}/{name} ]; then :\n"
        f"elif [ ! -d {inbox} ]; then koala_mark lost\n"
        f'else {printing(data)} >"{fresh}" && mv -f "{fresh}" {inbox}/{name} || exit {EXIT_NO_DIRECTORY}\nfi\n'
    )


# -------------------------------------------------------------------------------------------- what they say


class AwaitedFiles(NamedTuple):
    """What is to be waited for at a living component: files of these names, and mail beside that of these names."""

    token: Token
    files: tuple[str, ...] = ()
    mail_known: tuple[str, ...] | None = None


def _wait(awaited: Sequence[AwaitedFiles], patience_s: float) -> str:
    """Words that wait until one of these shows, at most so long. Only the pauses are processes."""
    signs = [f"[ -e {each.token}/{name} ]" for each in awaited for name in each.files]
    signs += [
        f"koala_new_mail {each.token} {' '.join(each.mail_known)}" for each in awaited if each.mail_known is not None
    ]
    nap_s = max(NAP_LEAST_S, NAP_SHARE * patience_s)
    naps = max(1, round(patience_s / nap_s))
    return f"""koala_new_mail() {{
    koala_known=" $* "
    for koala_file in "$1"/{OUTBOX}/*; do
        case $koala_known in
        *" ${{koala_file##*/}} "*) ;;
        *) if [ -e "$koala_file" ]; then return 0; fi ;;
        esac
    done
    return 1
}}
koala_naps={naps}
until {" || ".join(signs) or "false"}; do
    if [ "$koala_naps" -le 0 ]; then break; fi
    koala_naps=$((koala_naps - 1))
    sleep {nap_s:.3f} 2>/dev/null || {{ sleep 1; koala_naps=0; }}
done
"""


def look(root: str, tokens: Sequence[Token], awaited: Sequence[AwaitedFiles] = (), patience_s: float = 0.0) -> str:
    """Look at living components, without a process for each. See ``koala.sites.batch.parse`` for what it prints.

    With patience, it waits before until something shows of what is awaited, but no longer than that.
    """
    if not tokens:
        return ""
    wait = _wait(awaited, patience_s) if patience_s > 0 else ""
    return f"{_enter(root)}{wait}{_look(tokens)}"


def look_anew(root: str, tokens: Sequence[Token]) -> str:
    """Look at components of which more may be there than can be seen. The client of a file server may remember for a
    minute what was in a directory; when it makes something there itself, it learns what else is there."""
    if not tokens:
        return ""
    fresh = '"$koala_each/.look.$koala_new"'
    return f"""{_enter(root)}for koala_each in {" ".join(tokens)}; do
    if [ -d "$koala_each" ] && [ ! -h "$koala_each" ]; then
        {{ printf '' >{fresh}; rm -f {fresh}; }} 2>/dev/null
    fi
done
{_look(tokens)}"""


def _look(tokens: Sequence[Token]) -> str:
    return f"""{_LOST}koala_mark looks
for koala_each in {" ".join(tokens)}; do
    if ! koala_plain "$koala_each/{RECORD}"; then
        if koala_lost "$koala_each"; then printf '%s lost\\n' "$koala_each"; fi
        continue
    fi
    for koala_file in "$koala_each"/* "$koala_each"/{OUTBOX}/*; do
        case $koala_file in
        */{OUTBOX}/*[!a-z0-9-]*) ;;
        */{OUTBOX}/*)
            if koala_plain "$koala_file"; then printf '%s mail %s\\n' "$koala_each" "${{koala_file##*/}}"; fi ;;
        */{READY}) printf '%s ready\\n' "$koala_each" ;;
        */{EXIT})
            if koala_plain "$koala_file"; then
                koala_read "$koala_file" {_EXIT_WORDS_CHARACTERS}
                printf '%s exit %s\\n' "$koala_each" "$koala_line"
            fi ;;
        */{ABORT})
            if koala_plain "$koala_file"; then
                koala_read "$koala_file" {_VERDICT_CHARACTERS}
                printf '%s abort %s\\n' "$koala_each" "$koala_line"
            fi ;;
        esac
    done
done
"""


def mail(root: str, token: Token, name: str) -> str:
    """A piece of mail of an outbox, if it is there; what is too long is cut, one byte too late. Section ``mail``."""
    path = f"{token}/{OUTBOX}/{name}"
    return f"{_enter(root)}if koala_plain {path}; then koala_mark mail; head -c {MAIL_BYTES_MAX + 1} {path}; fi\n"


def output(root: str, token: Token, paths: Sequence[str], offset: int, limit: int) -> str:
    """What stands in the first of some files, relative to the component's directory. Section ``output``."""
    text = f"{_enter(root)}cd {token} 2>/dev/null || {{ koala_mark unknown; cd /; }}\n"
    keyword = "if"
    for path in paths:
        word = shlex.quote(path if path.startswith("/") else f"./{path}")
        text += (
            f"{keyword} koala_plain {word}; then koala_mark output; tail -c +{offset + 1} {word} | head -c {limit}\n"
        )
        keyword = "elif"
    return f"{text}fi\n"


def nodes(root: str, token: Token) -> str:
    """A component's nodes and its addresses, once it is ready. Sections ``ready``, ``nodes`` and ``addresses``."""
    text = f"{_enter(root)}if [ -e {token}/{READY} ]; then\nkoala_show {READY} {token}/{READY}\n"
    for name in (NODES, ADDRESSES):
        text += (
            f"if koala_plain {token}/{name}; then koala_mark {name}; head -c {MAIL_BYTES_MAX} {token}/{name}; fi\n"
        )
    return f"{text}fi\n"


def site_text(job_environment: Sequence[tuple[str, str]], search_path: Sequence[str], on_node: str) -> str:
    """The file ``site`` of a component: variables for everything that it runs, and the functions of its nodes."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job_environment]
    if search_path:
        lines.append(f'export PATH={shlex.quote(":".join(search_path))}:"$PATH"')
    return "".join(f"{line}\n" for line in lines) + on_node
