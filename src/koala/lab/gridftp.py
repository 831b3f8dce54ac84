"""A GridFTP server for each site of a lab: anonymous, unencrypted, and limited to one directory of the site."""

from __future__ import annotations

import os
import pwd
import stat

from koala.lab import programs
from koala.lab.daemons import Daemons
from koala.lab.errors import LabError, LabFailedError
from koala.lab.plan import LabPlan, SitePlan

PROGRAMS = ("globus-gridftp-server",)
_NOBODY = "nobody"


def name_of(site: SitePlan) -> str:
    """Return the name of the daemon."""
    return f"{site.name}-gridftp"


def check(plan: LabPlan) -> None:
    """Raise LabError if the server of root's lab, which runs as nobody, could not reach its files."""
    if os.geteuid() != 0:
        return
    existing = next(each for each in (plan.directory, *plan.directory.parents) if each.is_dir())
    for each in (existing, *existing.parents):
        if not each.stat().st_mode & stat.S_IXOTH:
            raise LabError(
                f"--directory {plan.directory}: --gridftp of root serves files as {_NOBODY}, who may not enter {each}"
                "; choose a directory that all may enter, such as /var/tmp/koala-lab"
            )


def start(site: SitePlan, daemons: Daemons) -> None:
    """Start the server; return when it accepts connections. For root it runs as nobody, who owns what it writes, so
    its directory is open to all."""
    site.files.mkdir(parents=True)
    words = [
        programs.find("globus-gridftp-server") or "globus-gridftp-server",
        "-no-detach",
        "-aa",
        *("-port", str(site.file_server_port)),
        *("-control-interface", site.address),
        *("-data-interface", site.address),
        *("-restrict-paths", f"RW{site.files}"),
    ]
    if os.geteuid() == 0:
        nobody = pwd.getpwnam(_NOBODY)
        site.files.chmod(0o1777)
        words = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *words]
    daemons.start(name_of(site), words, site, {"HOME": str(site.files)})
    wait(site, daemons)


def wait(site: SitePlan, daemons: Daemons) -> None:
    """Wait until the server accepts connections."""
    name = name_of(site)
    programs.wait_until(
        lambda: daemons.listens(name, site.file_server_port) or not daemons.is_alive(name), programs.START_S_MAX
    )
    if not (daemons.is_alive(name) and daemons.listens(name, site.file_server_port)):
        raise LabFailedError(f"{site.name}: its GridFTP server did not start: {daemons.said(name)}")
