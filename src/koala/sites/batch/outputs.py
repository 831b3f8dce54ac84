"""Where an application's output stands at a batch site, relative to its component's directory."""

from __future__ import annotations

import posixpath

from koala.model.launch import STDERR, STDOUT, WORK
from koala.model.request import Application
from koala.sites.protocol import Stream


def output_paths(stream: Stream, application: Application) -> tuple[str, ...]:
    """The files to look into; the first that is there counts. Where a file for errors could not be opened, the
    shell's complaint about that stands in the usual place."""
    usual = STDOUT if stream is Stream.STDOUT else STDERR
    named = application.stdout if stream is Stream.STDOUT else application.stderr
    if named is None:
        return (usual,)
    path = posixpath.join(WORK, application.directory or ".", named)
    return (path, STDERR) if stream is Stream.STDERR else (path,)
