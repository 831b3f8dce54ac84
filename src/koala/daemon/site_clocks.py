"""Finds out whose clock is wrong: this machine's, or a site's. Sites send the time with their other answers.

One site proves nothing against this machine. Several sites do if they agree with each other, disagree with this
machine, and are most of those that send the time. Sites behind one login host have one clock, and count once. Their
time is never adopted: somebody has to set a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from koala.daemon.clock_check import span
from koala.files.transfer.route import has_local_files
from koala.model.grid import Grid, Site
from koala.model.request import SiteName
from koala.sites.remote_shell import RemoteShell, ShellError
from koala.sites.site_time import ahead_s, read_time

# At most this far may a site's clock and this machine's be apart.
SITE_CLOCK_S_MAX = 300.0
# Fewer clocks than these prove nothing against this machine's clock.
SITES_AGAINST_MIN = 2
# A start waits at most this long for the sites' clocks.
ASK_CLOCKS_S = 5.0


@dataclass(frozen=True, slots=True)
class ClockVerdict:
    """``behind_s`` is how far this machine's clock is behind most sites' clocks, negative if it is ahead; None if
    nothing contradicts it. ``wrong`` maps the sites whose clocks are wrong to how far they are ahead."""

    behind_s: float | None
    against: tuple[SiteName, ...]
    wrong: Mapping[SiteName, float]


def clock_of(site: Site) -> tuple[str, ...]:
    """Return which clock a site has: the clock of the host that its commands run on, under any account."""
    if site.batch is None:
        return ()
    return ((site.batch.ssh or "").rpartition("@")[2], *site.batch.through)


def judged(sites: Iterable[Site], ahead: Mapping[SiteName, float]) -> ClockVerdict:
    """Judge the clocks, given by how many seconds each site is ahead of this machine."""
    clocks = {site.name: clock_of(site) for site in sites if site.name in ahead}
    off = {site: by_s for site, by_s in ahead.items() if abs(by_s) > SITE_CLOCK_S_MAX}

    def counted(names: Iterable[SiteName]) -> int:
        return len({clocks[name] for name in names})

    # The largest group in which any two clocks agree: try each site as the lowest, and take the first largest group.
    groups = [[name for name, s in off.items() if 0 <= s - by_s <= SITE_CLOCK_S_MAX] for by_s in off.values()]
    most = max(groups, key=counted, default=[])
    if counted(most) < SITES_AGAINST_MIN or 2 * counted(most) <= counted(ahead):
        return ClockVerdict(None, (), off)
    middle = sorted(off[name] for name in most)[len(most) // 2]
    wrong = {site: by_s - middle for site, by_s in ahead.items() if abs(by_s - middle) > SITE_CLOCK_S_MAX}
    return ClockVerdict(middle, tuple(most), wrong)


def own_clock_in_words(verdict: ClockVerdict) -> str:
    """Describe how most sites' clocks contradict this machine's; empty if they do not."""
    if verdict.behind_s is None:
        return ""
    way = "behind" if verdict.behind_s > 0 else "ahead of"
    sites = ", ".join(verdict.against)
    return f"is {span(abs(verdict.behind_s))} {way} the clocks of most sites that tell theirs ({sites})"


def site_clock_in_words(site: SiteName, verdict: ClockVerdict) -> str:
    """Describe what is wrong with a site's clock; empty if nothing is."""
    by_s = verdict.wrong.get(site)
    if by_s is None:
        return ""
    way = "ahead of" if by_s > 0 else "behind"
    others = "this machine's" if verdict.behind_s is None else "those of most sites"
    return f"the clock of {site} is {span(abs(by_s))} {way} {others}; have it set there (NTP)"


async def ask_clocks(
    grid: Grid, *, wall: Callable[[], float] = time.time, patience_s: float = ASK_CLOCKS_S
) -> dict[SiteName, float]:
    """Return how far the clock of each remote site is ahead of this machine's, leaving out sites that do not answer
    soon. Embedded sites, and batch systems that this machine uses itself, share its clock."""
    remote = [site for site in grid.sites if not has_local_files(site)]
    found = await asyncio.gather(*(_ask(site, wall, patience_s) for site in remote))
    return {site.name: by_s for site, by_s in zip(remote, found, strict=True) if by_s is not None}


async def _ask(site: Site, wall: Callable[[], float], patience_s: float) -> float | None:
    settings = site.batch
    assert settings is not None, "a site that is reached over a shell says how"
    shell = RemoteShell(ssh=settings.ssh, through=settings.through, environment=dict(settings.environment))
    try:
        async with asyncio.timeout(patience_s):
            began = wall()
            answer = await shell.run("date +%s", timeout_s=patience_s)
            reported = read_time(answer.stdout.decode(errors="replace"))
            return None if reported is None else ahead_s(reported, began, wall())
    except (TimeoutError, ShellError, OSError):
        return None
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await shell.close()
