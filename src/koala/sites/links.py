"""Input files appear where an application starts: as links into the site's file area, and nowhere else.

``links.sh`` implements the rule for every kind of site: a batch site runs it there, an embedded site on this machine.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from koala.model.errors import Fault
from koala.model.launch import InputLink
from koala.model.request import SiteName
from koala.sites.protocol import SiteError
from koala.sites.shell_script import assign, function, quoted, shell_file

# The longest chain of links that is followed.
LINK_HOPS_MAX = 40


def stage(links: Sequence[InputLink]) -> str:
    """Define ``koala_stage TOKEN``, which makes the links in a component's workspace. Call it in the directory of all
    components.

    Section ``trouble WHAT INDEX`` for the first link that cannot be made; then ``$koala_trouble`` is set.
    """
    if not links:
        return function("koala_stage", "")
    calls = (
        f'"$1" {quoted((posixpath.normpath(link.source), posixpath.normpath(link.destination), str(index)))}'
        for index, link in enumerate(links)
    )
    every = function("koala_links", " &&\n".join(calls) + "\n")
    return f"{assign(koala_hops_max=LINK_HOPS_MAX)}{shell_file(__package__, 'links.sh')}{every}"


def refused(site: SiteName, what: str, link: InputLink) -> SiteError:
    """Return the error for a section ``trouble``, with advice and whose fault it is."""
    source, destination = repr(link.source), repr(posixpath.normpath(link.destination))
    fault = Fault.JOB
    match what:
        case "missing":
            why = f"input file {source} is not in the site's file area; bring it there first"
            fault = Fault.USER
        case "outside":
            why = f"input file {source} leads out of the site's file area; register it there"
            fault = Fault.USER
        case "taken":
            why = f"{destination} is taken in the component's directory; choose another path"
        case "unlinkable":
            why = f"{destination} is no path that the site can make in the component's directory; choose another path"
        case "unwritable":
            why = f"{destination} cannot be linked, as its directory cannot be written; check this site's disk"
            fault = Fault.SITE
        case _:
            why = f"{destination} leads out of the component's directory; choose another path"
    return SiteError(site, why, fault)
