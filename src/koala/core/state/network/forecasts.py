"""The measurements of the links between sites, and the current belief about each.

Measurements are kept by the direction of the bytes. If only one direction was measured, the other is believed to be
like it; a link without measurements is as the grid file says.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koala.core.changes import Changes
from koala.core.encoded import INFINITY
from koala.core.state.network.predictors import (
    MEASUREMENTS_MAX,
    OVERDUE_WEIGHT,
    Forecast,
    MeasuredBy,
    Measurement,
    forecast,
    transfer_weight,
)
from koala.model.facts import LinkBelief
from koala.policies.view import LinkRows, View

# At most this many links are reported for one placement.
LINKS_TOLD_MAX = 8
# At most this many directed links have measurements; the link with the oldest last measurement is forgotten first.
LINKS_MEASURED_MAX = 2_000


class LinkSeries(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The measurements from one site to another, the oldest first, in bytes/s and in seconds.

    ``declared_...`` are the values of the grid file at that time. ``asked_at`` is the time of a probe order that is
    not answered yet, ``probed_at`` the end of the last probe; ``failures`` counts the failed probes in a row, and
    ``failure`` is the reason for the last.
    """

    source: int
    target: int
    declared_bytes_per_s: float
    declared_latency_s: float
    bandwidth: list[Measurement] = []
    latency: list[Measurement] = []
    asked_at: float | None = None
    probed_at: float | None = None
    failures: int = 0
    failure: str = ""
    number: int = 0  # its place among all measured series, the latest last


class LinkForecasts:
    """All measurements and forecasts; the policies' view follows them."""

    def __init__(self, view: View, changes: Changes) -> None:
        self.view = view
        self._changes = changes
        self.measured = 0
        self.series: dict[tuple[int, int], LinkSeries] = {}  # the series with the latest measurement comes last
        # By direction, where something was measured.
        self.bandwidth: dict[tuple[int, int], Forecast] = {}
        self.latency: dict[tuple[int, int], Forecast] = {}
        # The current probe, the place of the search for the next one, and its time.
        self.probing: tuple[int, int] | None = None
        self.probe_cursor = 0
        self.probe_at = INFINITY

    def transferred(
        self, source: int, target: int, *, at: float, size_bytes: int, took_s: float, arrived: bool
    ) -> None:
        """Record how long a file of a job took, or has taken so far without arriving."""
        flowing_s = took_s - self.view.latency_s.at(source, target)
        weight = transfer_weight(size_bytes, flowing_s)
        if source == target or weight == 0.0:
            return
        bytes_per_s = size_bytes / flowing_s
        by = MeasuredBy.TRANSFER
        if not arrived:
            by = MeasuredBy.OVERDUE
            weight *= OVERDUE_WEIGHT
            bytes_per_s = min(bytes_per_s, self.view.bytes_per_s.at(source, target))
        self.add_bandwidth(source, target, Measurement(at, bytes_per_s, weight, size_bytes, by))

    def add_bandwidth(self, source: int, target: int, measured: Measurement) -> None:
        series = self.series_of(source, target)
        _append(series.bandwidth, measured)
        self._believe_bandwidth(series)

    def add_latency(self, source: int, target: int, measured: Measurement) -> None:
        series = self.series_of(source, target)
        _append(series.latency, measured)
        self._believe_latency(series)

    def put(self, series: LinkSeries) -> None:
        """Restore earlier measurements. If the grid file has changed since, its values take precedence."""
        pair = series.source, series.target
        declared_bytes_per_s = self.view.bytes_per_s.declared(*pair)
        declared_latency_s = self.view.latency_s.declared(*pair)
        if series.declared_bytes_per_s != declared_bytes_per_s:
            series.bandwidth = []
        if series.declared_latency_s != declared_latency_s:
            series.latency = []
        if not series.bandwidth and not series.latency and series.asked_at is None and series.probed_at is None:
            return
        series.declared_bytes_per_s = declared_bytes_per_s
        series.declared_latency_s = declared_latency_s
        self.series[pair] = series
        if series.asked_at is not None:
            self.probing = pair
        if series.bandwidth:
            self._believe_bandwidth(series)
        if series.latency:
            self._believe_latency(series)

    def series_of(self, source: int, target: int) -> LinkSeries:
        """Return the series of a direction, as the latest measured."""
        series = self.series.pop((source, target), None)
        if series is None:
            if len(self.series) >= LINKS_MEASURED_MAX:
                self._forget(next(iter(self.series)))
            series = LinkSeries(
                source=source,
                target=target,
                declared_bytes_per_s=self.view.bytes_per_s.declared(source, target),
                declared_latency_s=self.view.latency_s.declared(source, target),
            )
        self.series[source, target] = series
        self.measured += 1
        series.number = self.measured
        self._changes.links[source, target] = None
        return series

    def believed(self, links: Iterable[tuple[int, int]]) -> tuple[LinkBelief, ...]:
        """Return the current beliefs about these links and their reasons, without unmeasured links.

        Returns at most ``LINKS_TOLD_MAX``.
        """
        told = []
        for source, target in links:
            rate, rated = self._said(self.bandwidth, source, target)
            latency, timed = self._said(self.latency, source, target)
            if rate is None and latency is None:
                continue
            told.append(
                LinkBelief(
                    source=self.view.names[source],
                    target=self.view.names[target],
                    bytes_per_s=self.view.bytes_per_s.at(source, target),
                    rate_predictor="" if rate is None else rate.predictor,
                    rates=0 if rated is None else len(rated.bandwidth),
                    latency_s=self.view.latency_s.at(source, target),
                    latency_predictor="" if latency is None else latency.predictor,
                    latencies=0 if timed is None else len(timed.latency),
                )
            )
        return tuple(told[:LINKS_TOLD_MAX])

    def _said(
        self, forecasts: dict[tuple[int, int], Forecast], source: int, target: int
    ) -> tuple[Forecast | None, LinkSeries | None]:
        """Return the forecast for a direction, or for the way back if there is none, and its series."""
        pair = (source, target) if (source, target) in forecasts else (target, source)
        return forecasts.get(pair), self.series.get(pair)

    def _forget(self, pair: tuple[int, int]) -> None:
        del self.series[pair]
        self._changes.links[pair] = None
        lans = self.view.lans
        lans.believe(lans.bytes_per_s, pair, None)
        lans.believe(lans.latency_s, pair, None)
        for forecasts, rows in ((self.bandwidth, self.view.bytes_per_s), (self.latency, self.view.latency_s)):
            if forecasts.pop(pair, None) is not None:
                back = forecasts.get((pair[1], pair[0]))
                value = rows.declared(*pair) if back is None else back.value
                rows.set(*pair, value)
                if back is None:
                    rows.set(pair[1], pair[0], value)

    def _believe_bandwidth(self, series: LinkSeries) -> None:
        said = forecast(series.declared_bytes_per_s, series.bandwidth)
        _believe(self.bandwidth, self.view.bytes_per_s, series, said)
        lans = self.view.lans
        lans.believe(lans.bytes_per_s, (series.source, series.target), said.value)

    def _believe_latency(self, series: LinkSeries) -> None:
        said = forecast(series.declared_latency_s, series.latency)
        _believe(self.latency, self.view.latency_s, series, said)
        lans = self.view.lans
        lans.believe(lans.latency_s, (series.source, series.target), said.value)


def _append(measurements: list[Measurement], measured: Measurement) -> None:
    measurements.append(measured)
    if len(measurements) > MEASUREMENTS_MAX:
        del measurements[0]


def _believe(forecasts: dict[tuple[int, int], Forecast], rows: LinkRows, series: LinkSeries, said: Forecast) -> None:
    """Use the forecast for this direction, and for the way back if nothing was measured there."""
    source, target = series.source, series.target
    forecasts[source, target] = said
    rows.set(source, target, said.value)
    if (target, source) not in forecasts:
        rows.set(target, source, said.value)
