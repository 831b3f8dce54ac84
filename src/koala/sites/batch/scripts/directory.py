"""Shell scripts for the component directories of a batch site: they make, inspect, notify and remove them.

The functions that the scripts call are in ``directory.sh``; here each gets its values. How input files appear is in
``koala.sites.links``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from koala.model.launch import MAIL_BYTES_MAX, Go
from koala.model.messages import ENDED_NODES_MAX, ComponentEnded, Token
from koala.sites.component_directory import (
    EXIT_BYTES_MAX,
    MAILS_MAX,
    NOTE_BYTES_MAX,
    OVERLONG,
    RECORD_BYTES_MAX,
    AbortRecord,
    AcceptanceRecord,
)
from koala.sites.shell_script import assign, call, directory_word, function, printing, quoted, shell_file

OWNER = "owner"  # the file that says which Koala uses the work directory

# So much is read of the file of a component's nodes: more than ENDED_NODES_MAX of them take.
_NODES_BYTES_MAX = 8_192
# How long the pauses are at least while files are awaited, where ``sleep`` knows fractions of a second.
PAUSE_LEAST_S = 0.1


def _begin(root: str) -> str:
    """Define the functions, and go where the components are."""
    return f"{assign(koala_root=root)}{_functions()}koala_enter\n"


def _functions() -> str:
    limits = assign(
        koala_record_bytes=RECORD_BYTES_MAX,
        koala_note_bytes=NOTE_BYTES_MAX,
        koala_exit_bytes=EXIT_BYTES_MAX,
        koala_overlong=OVERLONG,
        koala_nodes_bytes=_NODES_BYTES_MAX,
        koala_nodes_max=ENDED_NODES_MAX,
        koala_mails_max=MAILS_MAX,
    )
    return limits + shell_file(__package__, "directory.sh")


def _json(value: AcceptanceRecord | AbortRecord | ComponentEnded) -> str:
    return msgspec.json.encode(value).decode()


# ---------------------------------------------------------------------------------------- the work directory


def open_work_directory(work_directory: str, owner: str, mark: str) -> str:
    """Make the work directory where there is none, claim it, and show all components that have not ended.

    Sections: ``root``, ``owner``, and in our own directory ``mark``, ``known`` with the names of all components, also
    of those that have ended, and those that have not as ``show`` has them.
    """
    return f"koala_root={directory_word(work_directory)}\n{_functions()}{call('koala_open', owner, mark)}"


def show(root: str, tokens: Sequence[Token]) -> str:
    """Show components, also those that have ended: a section ``component TOKEN``, and one for each of its files."""
    return _begin(root) + "".join(call("koala_show_component", token) for token in tokens)


# ----------------------------------------------------------------------------------------------- components


def make(root: str, record: AcceptanceRecord, script: str, site: str, submission: str | None = None) -> str:
    """Accept a component and perhaps submit it; one that is there already is shown instead. It is accepted once its
    record is there. Section: ``submitted CODE``."""
    making = call("koala_make", record.launch.token, script, site, _json(record))
    if submission is None:
        return f"{_begin(root)}{making}"
    return f"{_begin(root)}{function('koala_submission', submission)}{assign(koala_submits='yes')}{making}"


def submit(root: str, token: Token, submission: str) -> str:
    """Submit a component that is there, unless it is to be no more. Section: ``submitted CODE`` or ``barred``."""
    return f"{_begin(root)}{function('koala_submission', submission)}{call('koala_submit', token)}"


def put_lines(root: str, lines: Mapping[tuple[Token, str], str | None]) -> str:
    """Write small files into components' directories; None removes one."""
    commands = (
        call("rm", "-f", f"{token}/{name}") if line is None else call("koala_put", token, name, line)
        for (token, name), line in lines.items()
    )
    return _begin(root) + "".join(commands)


def abort(root: str, token: Token, verdict: AbortRecord, unknown: ComponentEnded, cancel: str) -> str:
    """From now on the application must not start; of several aborts the first stands. One that nobody knows has ended
    as ``unknown`` says.

    Sections: those of ``show``, and then ``cancelled CODE`` if it had to be.
    """
    aborting = call("koala_abort", token, _json(verdict), _json(unknown))
    return f"{_begin(root)}{function('koala_cancel', cancel)}{aborting}"


def ask(root: str, unknown: Sequence[ComponentEnded]) -> str:
    """Show components that the driver does not watch; those that nobody knows end so first."""
    return _begin(root) + "".join(call("koala_ask", event.token, _json(event)) for event in unknown)


def settle(root: str, events: Sequence[ComponentEnded], before: Mapping[Token, str] | None = None) -> str:
    """Put ends on record for good. Section ``settled TOKEN`` for each that could be; the commands ``before`` one must
    succeed first."""
    text = _begin(root)
    for event in events:
        settling = call("koala_settle", event.token, _json(event))
        first = (before or {}).get(event.token)
        text += f"{function('koala_before', first)}(koala_before) &&\n{settling}" if first else settling
    return text


def forget(root: str, token: Token) -> str:
    """Take a directory out of sight at once, and then remove it. Section ``gone`` once it is out of sight."""
    return _begin(root) + call("koala_forget", token)


# ------------------------------------------------------------------------------------------- what they are told


def release(root: str, token: Token, go: Go, at: float, stage: str) -> str:
    """Open the barrier, unless it is open or the component is to end. ``stage`` defines ``koala_stage``, which makes
    the links.

    Sections: ``released`` when the barrier is open, ``unseen`` when its directory cannot be seen or used; or what
    ``stage`` says.
    """
    return f"{_begin(root)}{stage}{call('koala_release', token, go.text, repr(at))}"


def deliver(root: str, token: Token, name: str, data: bytes) -> str:
    """Mail for a component. Section ``unknown`` where none of it can be seen, ``lost`` where it has no inbox."""
    letter = function("koala_letter", f"{printing(data)}\n")
    return f"{_begin(root)}{letter}{call('koala_deliver', token, name)}"


# -------------------------------------------------------------------------------------------- what they say


class AwaitedFiles(NamedTuple):
    """What is awaited of a component: files of these names, and mail beside that of these names."""

    token: Token
    files: tuple[str, ...] = ()
    mail_known: tuple[str, ...] | None = None


def _wait(awaited: Sequence[AwaitedFiles], patience_s: float, pause_share: float) -> str:
    """Wait until one of these shows, at most so long, with pauses that are such a share of it."""
    signs = [quoted(("[", "-e", f"{each.token}/{name}", "]")) for each in awaited for name in each.files]
    signs += [
        quoted(("koala_new_mail", each.token, *each.mail_known)) for each in awaited if each.mail_known is not None
    ]
    pauses = max(1, math.floor(patience_s / max(PAUSE_LEAST_S, pause_share * patience_s) + 1e-9))
    shows = function("koala_shows", f"{' || '.join(signs) or 'false'}\n")
    # Together no shorter than the wait: less would be taken for a sign that shows all the time.
    return shows + call("koala_await", pauses, f"{math.ceil(patience_s / pauses * 1000) / 1000:.3f}")


def inspect(
    root: str,
    tokens: Sequence[Token],
    awaited: Sequence[AwaitedFiles] = (),
    patience_s: float = 0.0,
    pause_share: float = 0.1,
) -> str:
    """Inspect components that have not ended, without a process for each. See ``koala.sites.batch.parse`` for what it
    prints. Section ``inspected``.

    With patience, it first waits until something of what is awaited shows, but no longer than that.
    """
    if not tokens:
        return ""
    wait = _wait(awaited, patience_s, pause_share) if patience_s > 0 else ""
    return f"{_begin(root)}{wait}{_inspect(tokens)}"


def inspect_anew(root: str, tokens: Sequence[Token]) -> str:
    """Inspect components of which more may be there than the client of a file server remembers."""
    return f"{_begin(root)}{call('koala_refresh', *tokens)}{_inspect(tokens)}" if tokens else ""


def _inspect(tokens: Sequence[Token]) -> str:
    return call("koala_inspect", *tokens)


def mail(root: str, token: Token, name: str) -> str:
    """A piece of mail of an outbox, if it is there; what is too long is cut, one byte too late. Section ``mail``."""
    return _begin(root) + call("koala_mail", token, name, MAIL_BYTES_MAX + 1)


def output(root: str, token: Token, paths: Sequence[str], offset: int, limit: int) -> str:
    """What stands in the first of some files, relative to the component's directory. Section ``output``."""
    named = (path if path.startswith("/") else f"./{path}" for path in paths)
    return _begin(root) + call("koala_output", token, offset, limit, *named)


def nodes(root: str, token: Token) -> str:
    """A component's nodes and its addresses, once it is ready. Sections ``ready``, ``nodes`` and ``addresses``."""
    return _begin(root) + call("koala_show_nodes", token, MAIL_BYTES_MAX)


def site_text(job_environment: Sequence[tuple[str, str]], search_path: Sequence[str], on_node: str) -> str:
    """The file ``site`` of a component: variables for everything that it runs, and the functions of its nodes."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job_environment]
    if search_path:
        lines.append(f'export PATH={shlex.quote(":".join(search_path))}:"$PATH"')
    return "".join(f"{line}\n" for line in lines) + on_node
