"""The sites of the tests of rsync: two with access to each other, one without access to others, one behind a
command."""

from __future__ import annotations

from tests.support.file_servers import SYSTEM_PATH, FileGrid, SshServer


def add_sites(grid: FileGrid, server: SshServer) -> None:
    """Add the sites: this machine sees ``home``; ``west`` and ``east`` reach each other by ssh, ``lone`` reaches
    nobody, ``behind`` has no ssh at all."""
    reaching = f"{server.reaching}:{SYSTEM_PATH}"
    grid.local("home")
    grid.remote("west", reaching, ssh="west")
    grid.remote("east", reaching, ssh="east")
    grid.remote("lone", ssh="east")
    grid.remote("behind", through=("env", "KOALA_THROUGH=1"))
