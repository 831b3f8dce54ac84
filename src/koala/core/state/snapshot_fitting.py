"""Books of the core on a grid that is not the one they were written on: what is planned anew, and what cannot be.

Parameters are the new grid's, and every waiting job is tried again. A site may only be missing when nothing is left
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koala.core.lifecycle import JobState
from koala.core.state.ledger import Ledger
from koala.core.state.queues import INFINITY
from koala.core.state.snapshot import Books, SnapshotError, damaged
from koala.core.state.timers import Alarm
from koala.model.request import SiteName

# How many of a kind are named in an error before the rest is only counted.
NAMED_IN_ERROR = 5


def fit_to_grid(ledger: Ledger) -> None:
    """The grid is not the one that the books were written on: what was planned by its parameters is planned anew."""
    for queue in (ledger.high, ledger.low):
        queue.scan_due_at = INFINITY
        queue.untried = queue.size > 0
    interval_s = ledger.parameters.check_interval_s
    for job in ledger.jobs.values():
        if job.state is not JobState.RUNNING:
            continue
        if interval_s is None:
            job.stop_timer()
        elif job.timer is None:
            job.timer = ledger.timers.set(ledger.now + interval_s, Alarm.LOOK_AFTER, job)


def nothing_is_left_at_missing_sites(books: Books, index: Mapping[SiteName, int]) -> None:
    """Whatever is held, promised or on its way must have its site in the grid; the first that lacks is told."""
    known = {page.name for page in books.sites} | set(index)
    for page in books.sites:
        if page.name not in index:
            left = _left_at(page.name, books)
            if left:
                raise SnapshotError(
                    f"the grid does not have the site {page.name!r} any more, but there are still {', '.join(left)}",
                    "put the site back into the grid file, drain it, and take it out when nothing is left there; "
                    "or cancel these jobs first",
                )
    strangers = sorted({site for site in _sites_named(books) if site not in known})
    if strangers:
        raise damaged(f"they speak of the site {strangers[0]!r}, which has no page")


def _left_at(site: SiteName, books: Books) -> list[str]:
    tokens = [claim.token for claim in books.claims if claim.site == site]
    placed = [job.id for job in books.jobs if any(place == site for place, _ in job.places)]
    transfers = [
        page.id for page in books.transfers if page.target == site or (page.source == site and not page.done)
    ]
    naming = [
        job.id
        for job in books.jobs
        if job.request.home == site or any(component.site == site for component in job.request.components)
    ]
    found = (
        ("components", tokens),
        ("jobs placed there", placed),
        ("transfers", transfers),
        ("jobs that name it", naming),
    )
    return [f"{what} ({_some(ids)})" for what, ids in found if ids]


def _some(ids: Iterable[int | str]) -> str:
    shown = [str(each) for each in ids]
    more = len(shown) - NAMED_IN_ERROR
    return ", ".join(shown[:NAMED_IN_ERROR]) + (f" and {more} more" if more > 0 else "")


def _sites_named(books: Books) -> Iterable[SiteName]:
    """Every name that must have an index before the books can be read."""
    for claim in books.claims:
        yield claim.site
    for job in books.jobs:
        for site, _ in job.places:
            yield site
    for transfer in books.transfers:
        yield transfer.target
