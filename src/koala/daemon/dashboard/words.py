"""Formats numbers for the dashboard's pages: durations, amounts of data, counted things. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from koala.model.api import JobSummary, Place, SiteInfo
from koala.words import expectations

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: ``8.2 s``, ``3 min 20 s``, ``2 h 5 min``, ``4 d 3 h``."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return _two(whole // _MINUTE_S, "min", whole % _MINUTE_S, "s")
    if whole < _DAY_S:
        return _two(whole // _HOUR_S, "h", whole % _HOUR_S // _MINUTE_S, "min")
    return _two(whole // _DAY_S, "d", whole % _DAY_S // _HOUR_S, "h")


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large} {unit} {small} {small_unit}" if small else f"{large} {unit}"


def moment(at: float) -> str:
    """Format a moment for people, in UTC."""
    return _utc(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock_time(at: float) -> str:
    """Format the time of day of a moment, in UTC."""
    return _utc(at).strftime("%H:%M:%S")


def expected(at: float, sites: Sequence[str], now: float) -> str:
    """Format a plan of a job: ``expected at 14:05:10 UTC on delft and leiden``."""
    return expectations.expected(at, sites, now, clock_at(now))


def planned(at: float, sites: Sequence[str], now: float) -> str:
    """Format when and where a job has a plan: ``14:05:10 UTC on delft and leiden``."""
    return expectations.planned(at, sites, now, clock_at(now))


def with_its_time(why: str, at: float | None, now: float) -> str:
    """Format what keeps a job back and, if known, the time for which it waits."""
    return expectations.with_its_time(why, at, clock_at(now))


def clock_at(now: float) -> Callable[[float], str]:
    """Return the format of moments at this time: with the date unless it is today's."""
    return lambda at: f"{clock_time(at)} UTC" if _utc(at).date() == _utc(now).date() else moment(at)


def machine_moment(at: float) -> str:
    """Format a moment for programs: ISO 8601 in UTC."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)


def amount(size_bytes: float) -> str:
    """Format an amount of data with a decimal unit: ``512 B``, ``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size_bytes < 999.5:
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 99.5 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} PB"


def counted(number: int, thing: str, things: str = "") -> str:
    """Format a number with its thing: ``1 job``, ``2 jobs``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def shortened(text: str, characters: int) -> str:
    """Return the text, cut with an ellipsis if it is longer than ``characters``."""
    return text if len(text) <= characters else text[: characters - 1] + "\N{HORIZONTAL ELLIPSIS}"


def processor_time(processor_s: float) -> str:
    """Format processor time, in hours if it is long enough."""
    if processor_s < 360:
        return counted(round(processor_s), "processor second")
    return f"{processor_s / 3_600:,.1f} processor hours"


def places(job: JobSummary) -> str:
    """Format a job's places: ``4 on delft, 2 on leiden``; each site once."""
    return places_of(job.places)


def places_of(held: Iterable[Place]) -> str:
    """Format these places, each site once."""
    total: dict[str, int] = {}
    for place in held:
        total[place.site] = total.get(place.site, 0) + place.processors
    return ", ".join(f"{processors} on {site}" for site, processors in total.items())


def condition(site: SiteInfo) -> str:
    """Return a site's condition in one word, the gravest first: lost, silent, misconfigured, unusable, drained,
    probing, usable."""
    if site.lost:
        return "lost"
    if site.silent_since is not None:
        return "silent"
    if site.misconfigured:
        return "misconfigured"
    if site.trust == "unusable":
        return "unusable"
    if site.drained:
        return "drained"
    return site.trust


# Who chose the sites of a job, by the kind of its request.
CHOSEN_BY = {
    "fixed": "named by the job",
    "non-fixed": "chosen by Koala",
    "flexible": "chosen by Koala, which divides the total",
}
# How a measurement of a link was made, and the source of what a job sends between its sites.
MEASURED_BY = {"transfer": "a file", "overdue": "a file that is overdue", "probe": "a probe"}
KNOWN_FROM = {
    "declared": "what it declared",
    "learned": "jobs of its name",
    "measured": "a measurement",
    "unknown": "nothing: it counts as sending nothing",
}
CONDITION_MEANING = {
    "silent": "It does not answer; what it holds is not known.",
    "lost": "Nobody waits for it any more: its jobs start again elsewhere; what it still runs counts for nothing.",
    "misconfigured": "It answers, and is not set up as the grid file says; nothing goes there.",
    "unusable": "It is not trusted; after a pause one job tries it again.",
    "drained": "An operator took it out; nothing new goes there.",
    "probing": "One job tries it after it lost its trust.",
    "usable": "Jobs go there.",
}
