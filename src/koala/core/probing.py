"""Which link is probed next, and when: one at a time, rarely, and only if no job of ours uses it.

The driver performs a probe and reports the measurement, or why there is none. The scheduler remembers the reason, and
the link rests for longer each time. A failed probe never counts against a site.
"""

from __future__ import annotations

from koala.core.encoded import INFINITY
from koala.core.state.ledger import Ledger
from koala.core.state.network.forecasts import LinkSeries
from koala.core.state.network.predictors import MeasuredBy, Measurement
from koala.model.grid import PROBE_EVERY_S, Grid, Site, SiteKind
from koala.model.messages import LinkProbed, ProbeLink

# A probe that is not answered within this time has failed.
PROBE_DEADLINE_S = 60.0
# A scheduler that has just begun has other things to do first.
PROBE_FIRST_S = 60.0
# At least this much time passes between two probes, also of different links.
PROBE_GAP_S_MIN = 5.0
# A link whose probes fail rests for twice as long each time, up to this.
PROBE_REST_S_MAX = 86_400.0
# At most this many links are examined in search of an idle one.
LINKS_LOOKED_AT_MAX = 64
# The reason for a failed probe is cut to this many characters.
FAILURE_CHARACTERS_MAX = 400


def probe_every_s(grid: Grid, source: Site, target: Site) -> float:
    """Return how often a link is probed; infinity for never."""
    if why_not_probed(grid, source, target):
        return INFINITY
    told = grid.scheduler.probe_every_s
    return PROBE_EVERY_S if told is None else told


def why_not_probed(grid: Grid, source: Site, target: Site) -> str:
    """Return why a link is never probed; empty if it is."""
    for site in (source, target):
        if not site.probes:
            return f"probes are off at {site.name} (probes: false in the grid file)"
    if grid.scheduler.probe_every_s == 0:
        return "probes are off (probe_every_s: 0 in the grid file)"
    if SiteKind.SIMULATED in (source.kind, target.kind):
        if grid.scheduler.probe_every_s is None:
            return "simulated sites are probed only where the grid file sets probe_every_s"
    elif source.is_here and target.is_here:
        return "there is no network between sites on the daemon's own machine"
    return ""


class LinkProbing:
    """Cycles through the links. Its state is in ``ledger.forecasts``."""

    def __init__(self, ledger: Ledger, grid: Grid) -> None:
        self.ledger = ledger
        self._grid = grid
        self._sites = [index for index, site in enumerate(grid.sites) if site.probes]
        count = len(self._sites)
        self._pairs = count * (count - 1)
        parameters = grid.scheduler
        every_s = PROBE_EVERY_S if parameters.probe_every_s is None else parameters.probe_every_s
        self._gap_s = max(PROBE_GAP_S_MIN, every_s / max(1, self._pairs))
        simulated = any(site.kind == SiteKind.SIMULATED for site in grid.sites)
        here = all(site.is_here for site in grid.sites) and not simulated
        never = every_s == 0 or here or (simulated and parameters.probe_every_s is None)
        ledger.forecasts.probe_at = INFINITY if never or not self._pairs else 0.0

    def look(self) -> None:
        """Give up an overdue probe, and order the next one that is due."""
        forecasts, now = self.ledger.forecasts, self.ledger.now
        if forecasts.probe_at == 0.0:
            forecasts.probe_at = now + PROBE_FIRST_S
            return
        if forecasts.probing is not None:
            asked = forecasts.series.get(forecasts.probing)
            if asked is not None and asked.asked_at is not None:
                if now < asked.asked_at + PROBE_DEADLINE_S:
                    forecasts.probe_at = asked.asked_at + PROBE_DEADLINE_S
                    return
                self._failed(asked, f"there was no answer within {PROBE_DEADLINE_S:g} s")
            forecasts.probing = None
        for _ in range(min(self._pairs, LINKS_LOOKED_AT_MAX)):
            pair = self._next_pair()
            if self._is_due(pair) and self._is_idle(pair):
                self._ask(pair)
                return
        forecasts.probe_at = now + self._gap_s

    def on_probed(self, event: LinkProbed) -> None:
        """Record the measurement of a probe, or why it failed."""
        ledger = self.ledger
        source, target = ledger.index.get(event.source), ledger.index.get(event.target)
        if source is None or target is None or source == target:
            return
        forecasts = ledger.forecasts
        series = forecasts.series_of(source, target)
        series.asked_at = None
        if forecasts.probing == (source, target):
            forecasts.probing = None
            forecasts.probe_at = ledger.now + self._wait_s()
        if event.reason:
            self._failed(series, event.reason)
            return
        series.probed_at, series.failure, series.failures = ledger.now, "", 0
        if event.latency_s is not None:
            forecasts.add_latency(source, target, Measurement(ledger.now, event.latency_s, 1.0, 0, MeasuredBy.PROBE))
        if event.bytes_per_s is not None:
            measured = Measurement(ledger.now, event.bytes_per_s, 1.0, event.size_bytes, MeasuredBy.PROBE)
            forecasts.add_bandwidth(source, target, measured)

    def _failed(self, series: LinkSeries, reason: str) -> None:
        self.ledger.changes.links[series.source, series.target] = None
        series.asked_at = None
        series.probed_at = self.ledger.now
        series.failure = reason[:FAILURE_CHARACTERS_MAX]
        series.failures += 1

    def _ask(self, pair: tuple[int, int]) -> None:
        ledger = self.ledger
        forecasts, now = ledger.forecasts, ledger.now
        forecasts.series_of(*pair).asked_at = now
        forecasts.probing = pair
        forecasts.probe_at = now + PROBE_DEADLINE_S
        ledger.commands.append(ProbeLink(source=ledger.names[pair[0]], target=ledger.names[pair[1]]))

    def _next_pair(self) -> tuple[int, int]:
        pair = self._pair(self.ledger.forecasts.probe_cursor)
        self.ledger.forecasts.probe_cursor = (self.ledger.forecasts.probe_cursor + 1) % self._pairs
        return pair

    def _pair(self, place: int) -> tuple[int, int]:
        source, target = divmod(place % self._pairs, len(self._sites) - 1)
        return self._sites[source], self._sites[target + (target >= source)]

    def _wait_s(self) -> float:
        """Return the wait until the next probe: links that were never probed come soon after one another."""
        series = self.ledger.forecasts.series.get(self._pair(self.ledger.forecasts.probe_cursor))
        return PROBE_GAP_S_MIN if series is None or series.probed_at is None else self._gap_s

    def _is_due(self, pair: tuple[int, int]) -> bool:
        source, target = (self._grid.sites[site] for site in pair)
        every_s = probe_every_s(self._grid, source, target)
        series = self.ledger.forecasts.series.get(pair)
        if series is None or series.probed_at is None:
            return every_s < INFINITY
        rest_s: float = min(every_s * 2.0 ** min(series.failures, 32), max(every_s, PROBE_REST_S_MAX))
        # A round takes about as long as every link waits; a slightly early turn must not cost a link a whole round.
        return self.ledger.now >= series.probed_at + rest_s - self._gap_s

    def _is_idle(self, pair: tuple[int, int]) -> bool:
        """Return True if no file of ours is on its way from or to one of the two sites, and no job is at both."""
        ledger = self.ledger
        sites = [ledger.sites.sites[site] for site in pair]
        if any(site.lost for site in sites):
            return False
        moving = (transfer for transfer in ledger.transfers.by_id.values() if not transfer.done)
        if any(transfer.source in pair or transfer.key[2] in pair for transfer in moving):
            return False
        there = {claim.job_id for claim in sites[0].claims.values()}
        return not any(claim.job_id in there for claim in sites[1].claims.values())
