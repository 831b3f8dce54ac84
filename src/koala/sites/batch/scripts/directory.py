"""Shell scripts for the component directories of a batch site: they create, inspect, notify and remove them.

``directory.sh`` contains the functions that the scripts call; here each receives its values. ``koala.sites.links``
makes input files appear.
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

OWNER = "owner"  # the file that names the Koala that uses the work directory

# At most this much is read of a component's nodes file: enough for more than ENDED_NODES_MAX nodes.
_NODES_BYTES_MAX = 8_192
# The shortest pause while files are awaited, where ``sleep`` accepts fractions of a second.
PAUSE_LEAST_S = 0.1


def _begin(root: str) -> str:
    """Return lines that define the functions and enter the directory of the components."""
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
    """Return a script that creates and claims the work directory as needed, and shows all live components.

    Sections: ``root``, ``owner``, and in our own directory ``mark``, ``known`` with the names of all components,
    ended ones included, and the live ones in the form of ``show``.
    """
    return f"koala_root={directory_word(work_directory)}\n{_functions()}{call('koala_open', owner, mark)}"


def show(root: str, tokens: Sequence[Token]) -> str:
    """Return a script that shows components, live or ended: a section ``component TOKEN``, and one for each of its
    files."""
    return _begin(root) + "".join(call("koala_show_component", token) for token in tokens)


# ----------------------------------------------------------------------------------------------- components


def make(root: str, record: AcceptanceRecord, script: str, site: str, submission: str | None = None) -> str:
    """Return a script that accepts a component and may submit it; an existing one is shown instead. A component is
    accepted once its record exists. Section: ``submitted CODE``."""
    making = call("koala_make", record.launch.token, script, site, _json(record))
    if submission is None:
        return f"{_begin(root)}{making}"
    return f"{_begin(root)}{function('koala_submission', submission)}{assign(koala_submits='yes')}{making}"


def submit(root: str, token: Token, submission: str) -> str:
    """Return a script that submits an existing component, unless it is aborted. Section: ``submitted CODE`` or
    ``barred``."""
    return f"{_begin(root)}{function('koala_submission', submission)}{call('koala_submit', token)}"


def put_lines(root: str, lines: Mapping[tuple[Token, str], str | None]) -> str:
    """Return a script that writes small files into components' directories; None removes a file."""
    commands = (
        call("rm", "-f", f"{token}/{name}") if line is None else call("koala_put", token, name, line)
        for (token, name), line in lines.items()
    )
    return _begin(root) + "".join(commands)


def abort(root: str, token: Token, verdict: AbortRecord, unknown: ComponentEnded, cancel: str) -> str:
    """Return a script after which the application must not start; the first of several aborts stands. An unknown
    component ends as ``unknown`` says.

    Sections: the sections of ``show``, then ``cancelled CODE`` if a job had to be cancelled.
    """
    aborting = call("koala_abort", token, _json(verdict), _json(unknown))
    return f"{_begin(root)}{function('koala_cancel', cancel)}{aborting}"


def ask(root: str, unknown: Sequence[ComponentEnded]) -> str:
    """Return a script that shows components that the driver does not watch; unknown ones end as ``unknown`` says."""
    return _begin(root) + "".join(call("koala_ask", event.token, _json(event)) for event in unknown)


def settle(root: str, events: Sequence[ComponentEnded], before: Mapping[Token, str] | None = None) -> str:
    """Return a script that records ends for good. Section ``settled TOKEN`` for each that could be recorded; the
    commands ``before`` one must succeed first."""
    text = _begin(root)
    for event in events:
        settling = call("koala_settle", event.token, _json(event))
        first = (before or {}).get(event.token)
        text += f"{function('koala_before', first)}(koala_before) &&\n{settling}" if first else settling
    return text


def forget(root: str, token: Token) -> str:
    """Return a script that hides a directory at once, and then removes it. Section ``gone`` once it is hidden."""
    return _begin(root) + call("koala_forget", token)


# -------------------------------------------------------------------------------------------- to the components


def release(root: str, token: Token, go: Go, at: float, stage: str) -> str:
    """Return a script that opens the barrier, unless it is open or the component is to end. ``stage`` defines
    ``koala_stage``, which makes the links.

    Sections: ``released`` when the barrier is open, ``unseen`` when its directory cannot be seen or used; or the
    sections of ``stage``.
    """
    return f"{_begin(root)}{stage}{call('koala_release', token, go.text, repr(at))}"


def deliver(root: str, token: Token, name: str, data: bytes) -> str:
    """Return a script that delivers mail. Section ``unknown`` if the component is not visible, ``lost`` if it has no
    inbox."""
    letter = function("koala_letter", f"{printing(data)}\n")
    return f"{_begin(root)}{letter}{call('koala_deliver', token, name)}"


# -------------------------------------------------------------------------------------- from the components


class AwaitedFiles(NamedTuple):
    """What is awaited of a component: files with these names, and mail other than the mail with these names."""

    token: Token
    files: tuple[str, ...] = ()
    mail_known: tuple[str, ...] | None = None


def _wait(awaited: Sequence[AwaitedFiles], patience_s: float, pause_share: float) -> str:
    """Return lines that wait for one of these to appear, at most this long; each pause is the given share of the
    wait."""
    signs = [quoted(("[", "-e", f"{each.token}/{name}", "]")) for each in awaited for name in each.files]
    signs += [
        quoted(("koala_new_mail", each.token, *each.mail_known)) for each in awaited if each.mail_known is not None
    ]
    pauses = max(1, math.floor(patience_s / max(PAUSE_LEAST_S, pause_share * patience_s) + 1e-9))
    shows = function("koala_shows", f"{' || '.join(signs) or 'false'}\n")
    # The pauses add up to at least the wait: less would look like a file that is always there.
    return shows + call("koala_await", pauses, f"{math.ceil(patience_s / pauses * 1000) / 1000:.3f}")


def inspect(
    root: str,
    tokens: Sequence[Token],
    awaited: Sequence[AwaitedFiles] = (),
    patience_s: float = 0.0,
    pause_share: float = 0.1,
) -> str:
    """Return a script that inspects live components without a process for each. ``koala.sites.batch.parse`` describes
    its output. Section ``inspected``.

    With patience, the script first waits until an awaited file appears, but no longer than that.
    """
    if not tokens:
        return ""
    wait = _wait(awaited, patience_s, pause_share) if patience_s > 0 else ""
    return f"{_begin(root)}{wait}{_inspect(tokens)}"


def inspect_anew(root: str, tokens: Sequence[Token]) -> str:
    """Return a script that inspects components whose files a file server's client may have cached."""
    return f"{_begin(root)}{call('koala_refresh', *tokens)}{_inspect(tokens)}" if tokens else ""


def _inspect(tokens: Sequence[Token]) -> str:
    return call("koala_inspect", *tokens)


def mail(root: str, token: Token, name: str) -> str:
    """Return a script that prints a piece of mail if it exists, cut one byte beyond its limit. Section ``mail``."""
    return _begin(root) + call("koala_mail", token, name, MAIL_BYTES_MAX + 1)


def output(root: str, token: Token, paths: Sequence[str], offset: int, limit: int) -> str:
    """Return a script that prints the first existing one of some files of the component's directory. Section
    ``output``."""
    named = (path if path.startswith("/") else f"./{path}" for path in paths)
    return _begin(root) + call("koala_output", token, offset, limit, *named)


def nodes(root: str, token: Token) -> str:
    """Return a script that prints a ready component's nodes and addresses. Sections ``ready``, ``nodes`` and
    ``addresses``."""
    return _begin(root) + call("koala_show_nodes", token, MAIL_BYTES_MAX)


def site_text(job_environment: Sequence[tuple[str, str]], search_path: Sequence[str], on_node: str) -> str:
    """Return the file ``site`` of a component: variables for everything that it runs, and the functions of its
    nodes."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job_environment]
    if search_path:
        lines.append(f'export PATH={shlex.quote(":".join(search_path))}:"$PATH"')
    return "".join(f"{line}\n" for line in lines) + on_node
