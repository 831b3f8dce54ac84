"""How input files appear where an application starts: links into the site's file area, and nowhere else."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path

from koala.model.launch import Link
from koala.sites.protocol import SiteError


def stage(site: str, files: Path, work: Path, links: Sequence[Link]) -> None:
    """Make the links. All are checked before the first is made; making them again changes nothing.

    Raises ``SiteError`` for a source that is missing or whose real place is outside ``files``, and for a destination
    that is taken or whose real place is outside ``work``.
    """
    planned = [(_source(site, files, link), work / posixpath.normpath(link.destination)) for link in links]
    for source, destination in planned:
        _check_destination(site, work, source, destination)
    for source, destination in planned:
        # Again, since a link that was just made may lead this one elsewhere.
        _check_destination(site, work, source, destination)
        if not destination.is_symlink():
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.symlink_to(source)


def _source(site: str, files: Path, link: Link) -> Path:
    source = (files / link.source).resolve()
    if not source.is_relative_to(files.resolve()):
        raise SiteError(site, f"input file {link.source!r} leads out of the site's file area; register it there")
    if not source.exists():
        raise SiteError(site, f"input file {link.source!r} is not in the site's file area; bring it there first")
    return source


def _check_destination(site: str, work: Path, source: Path, destination: Path) -> None:
    named = str(destination.relative_to(work))
    if destination == work or not destination.parent.resolve().is_relative_to(work.resolve()):
        raise SiteError(site, f"{named!r} leads out of the component's directory; choose another path")
    if destination.is_symlink() and destination.readlink() == source:
        return
    if destination.is_symlink() or destination.exists():
        raise SiteError(site, f"{named!r} is taken in the component's directory; choose another path")
