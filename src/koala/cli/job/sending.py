"""The files that ``koala submit`` sends: the ones that the description names, and the paths of --with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from koala.cli.errors import UserError
from koala.cli.terminal.words import clean

STANDARD_INPUT = "standard input"


def text_to_send(name: str, what: str, example: str) -> tuple[str, str] | None:
    """Return the text of a file or of standard input, and its name in messages; None if there is no such file. The
    text is ``what``, for example ``a job`` such as the ``example``."""
    from koala.descriptions import decoded
    from koala.model.api import DESCRIPTION_BYTES_MAX

    if name == "-":
        shown = STANDARD_INPUT
        data = sys.stdin.buffer.read(DESCRIPTION_BYTES_MAX + 1)
    elif Path(name).is_file():
        shown = os.fsencode(name).decode("utf-8", errors="replace")
        with Path(name).open("rb") as file:
            data = file.read(DESCRIPTION_BYTES_MAX + 1)
    else:
        return None
    if len(data) > DESCRIPTION_BYTES_MAX:
        raise UserError(
            f"{shown}: {what} has at most {DESCRIPTION_BYTES_MAX} bytes (DESCRIPTION_BYTES_MAX), and this has more; "
            "put a large script into a file of its own that the job runs, and data into input files"
        )
    if not data.strip():
        raise UserError(f"{shown} is empty; write {what} into it, such as {example}")
    return decoded(data, shown), shown


def files_of(text: str, source: str, description: Path | None, with_paths: tuple[str, ...]) -> dict[str, str | Path]:
    """Return the names of the files where the job runs, with their paths here. Names in a description are relative to
    its directory, or to the current one if it comes from elsewhere; they do not lead out of it."""
    files: dict[str, str | Path] = {}
    beside = Path() if description is None else description.parent
    for name in _named(text, source):
        path = beside / name
        _check_inside(name, path, beside)
        files[name] = path
    return travelling(files, with_paths)


def travelling(files: dict[str, str | Path], with_paths: tuple[str, ...]) -> dict[str, str | Path]:
    """Return the files, plus each of the other paths under its last name."""
    files = dict(files)
    for path_text in with_paths:
        name = Path(os.path.abspath(path_text)).name  # noqa: PTH100 - a link keeps its own name
        if not name:
            raise UserError(f"--with {clean(path_text)}: it has no name of its own; name a file or a directory")
        if not Path(path_text).exists():
            raise UserError(f"--with {clean(path_text)}: there is no such file or directory; check the path")
        if name in files and not Path(files[name]).samefile(path_text):
            raise UserError(
                f"--with {clean(path_text)}: {clean(name)} travels with the job already, from "
                f"{clean(str(files[name]))}; rename one"
            )
        files[name] = Path(path_text)
    return files


def _named(text: str, source: str) -> list[str]:
    """Return the names in the description; empty if it is unreadable, which the daemon reports better."""
    if "files" not in text:
        return []
    from koala.descriptions import DescriptionError, is_graph, read_graph, read_job

    try:
        if is_graph(text, source):
            requests = [job.request for job in read_graph(text, source)]
        else:
            requests = [read_job(text, source)]
        return [*dict.fromkeys(file.path for request in requests for file in request.files)]
    except DescriptionError:
        return []


def _check_inside(name: str, path: Path, beside: Path) -> None:
    """Refuse a file outside the description's directory: a description from somebody else must not send other
    files."""
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        raise UserError(
            f"files: there is no {clean(name)} in {clean(str(beside.resolve()))}, the directory of the description; "
            "check the name, or make it first"
        ) from None
    except OSError as error:
        raise UserError(
            f"files: {clean(name)} cannot be read: {error.strerror}; write a path beside the description"
        ) from None
    except RuntimeError:
        raise UserError(f"files: {clean(name)}: {clean(str(path))} is a link to itself; remove it") from None
    if not real.is_relative_to(beside.resolve()):
        raise UserError(
            f"files: {clean(name)}: it is a link that leads out of the directory of the description; "
            f"send it with --with {clean(str(path))}"
        )
