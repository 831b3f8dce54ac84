"""The words and signs of the live verbs: times, sizes, bars, states with their colours.

Text that comes from a user or a site goes through ``clean`` before a terminal sees it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from koala.descriptions.errors import is_unprintable
from koala.words import expectations
from koala.words.expectations import with_its_time

if TYPE_CHECKING:
    from rich.text import Text

    from koala.model.api import ElementCountsInfo, JobSummary, Place, SiteInfo

STATE_STYLES = {
    "waiting": "yellow",
    "placed": "blue",
    "claiming": "blue",
    "starting": "cyan",
    "running": "green",
    "unwinding": "magenta",
    "held": "dim",
    "collecting": "green",
    "unfolding": "green",
    "quarantined": "bold red",
    "done": "dim",
    "failed": "red",
    "cancelled": "dim red",
}
OURS, OTHERS, IDLE, BARRIER, SHUT = (
    "\N{FULL BLOCK}",
    "\N{DARK SHADE}",
    "\N{MIDDLE DOT}",
    "\N{LIGHT SHADE}",
    "-",
)
_SITE_SIGNS = (f"{OURS} ours", f"{OTHERS} others", f"{IDLE} idle", f"{SHUT} not in use")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def span(seconds: float) -> str:
    """Format a duration in short: 0.4s, 12s, 3m05s, 2h10m, 4d03h."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s" if seconds >= 0.05 else "0s"
    whole = round(seconds)
    for (unit, length), (lesser, part) in itertools.pairwise(_UNITS):
        if whole >= length:
            return f"{whole // length}{unit}{whole % length // part:02d}{lesser}"
    return f"{whole}s"


def ago(at: float, now: float | None = None) -> str:
    """Format how long ago something was, in short."""
    return f"{span((time.time() if now is None else now) - at)} ago"


def clock(at: float, now: float | None = None) -> str:
    """Format a moment of today as a time of day, an older one with its date, in the reader's time zone."""
    then, today = time.localtime(at), time.localtime(now)
    form = "%H:%M:%S" if then[:3] == today[:3] else "%d %b %H:%M" if then[0] == today[0] else "%d %b %Y"
    return time.strftime(form, then)


def expected(at: float, sites: Sequence[str], now: float | None = None) -> str:
    """Format a plan of a job: ``expected at 14:05:10 on delft and leiden``."""
    now = time.time() if now is None else now
    return expectations.expected(at, [clean(site) for site in sites], now, clock_at(now))


def clock_at(now: float | None) -> Callable[[float], str]:
    """Return the format of moments at this time."""
    return lambda at: clock(at, now)


def size(size_bytes: float) -> str:
    """Format a number of bytes in short: 1 byte, 512 bytes, 3.0 GB."""
    value = float(size_bytes)
    if round(value) == 1:
        return "1 byte"
    for unit in _SIZES:
        if value < 999.5 or unit == _SIZES[-1]:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.5 else f"{value:.1f} {unit}"
        value /= 1_000
    raise AssertionError("the last unit takes all")


def clean(text: str) -> str:
    """Return text in which nothing moves the cursor, recolours the terminal or begins a line."""
    return "".join("\N{REPLACEMENT CHARACTER}" if is_unprintable(each) else each for each in text)


def state_text(state: str) -> Text:
    """Return a job's state in its colour."""
    from rich.text import Text

    return Text(clean(state), style=STATE_STYLES.get(state, ""))


def shown_state(job: JobSummary) -> str:
    """Return its state for people: an array runs or waits, as its elements do."""
    return job.standing or job.state


def places_words(places: Sequence[Place]) -> str:
    """Format a job's places: ``amsterdam 4, berlin 2+2``."""
    by_site: dict[str, list[str]] = {}
    for place in places:
        by_site.setdefault(place.site, []).append(str(place.processors))
    return ", ".join(f"{clean(site)} {'+'.join(sizes)}" for site, sizes in by_site.items())


def job_when(job: JobSummary, now: float | None = None) -> str:
    """Return the time that matters for a job's state: how long it ran, or how long it has been in its state."""
    now = time.time() if now is None else now
    if job.ended_at is not None:
        return "-" if job.started_at is None else span(job.ended_at - job.started_at)
    return span(now - job.since)


def job_note(job: JobSummary, verdict: str = "", *, short: bool = False) -> str:
    """Return notes on a job: that it waits in vain, its place in the queue, why it ended, how often it was restarted.
    In short, the last line of standard error of a failed program comes first."""
    notes = [verdict] if verdict else []
    if job.place_in_line is not None:
        notes.append(f"number {job.place_in_line} in its queue")
    if job.elements is not None:
        notes.append(elements_words(job.elements))
    quoted = short and job.stderr_line
    if quoted:
        notes.append(f"stderr: {clean(job.stderr_line)}")
    if job.exit_code not in (None, 0) and (quoted or f"exit code {job.exit_code}" not in job.reason):
        notes.append(f"exit code {job.exit_code}")
    if job.preemptions:
        notes.append("preempted" if job.preemptions == 1 else f"preempted {job.preemptions} times")
    if job.runs > 1:
        notes.append("restarted" if job.runs == 2 else f"restarted {job.runs - 1} times")
    if job.reason not in ("", job.state) and job.state != "done" and not quoted:
        notes.append(clean(with_its_time(job.reason, job.begins_at, clock_at(None))))
    return "; ".join(notes)


def elements_words(elements: ElementCountsInfo) -> str:
    """Describe the elements of an array: ``100 elements: 58 waiting, 10 running, 32 done``."""
    return f"{elements.size} {'element' if elements.size == 1 else 'elements'}: {elements.in_words}"


def first_element(job: JobSummary) -> str:
    """Return the name of an array's first element: ``17_0``."""
    return element_called(job, job.id + 1)


def element_called(array: JobSummary, number: int) -> str:
    """Return the name of the element of an array that has this job number."""
    from koala.model.job_array import read_array

    assert array.elements is not None, "an array has elements"
    return f"{array.id}_{read_array(array.elements.indices).index_at(number - array.id - 1)}"


def site_state(site: SiteInfo, now: float | None = None) -> tuple[str, str]:
    """Return whether a site can be used, in words, and their colour."""
    if site.lost:
        return "lost", "red"
    if site.misconfigured:
        return "misconfigured", "red"
    if site.silent_since is not None:
        return f"silent for {span((time.time() if now is None else now) - site.silent_since)}", "red"
    if site.drained:
        return "drained", "yellow"
    if site.trust != "usable":
        return site.trust, "red"
    if any(each.closes for each in site.excluded):
        return "not for all", "yellow"  # the excluded nodes and their programs are listed below
    return ("nodes excluded", "yellow") if site.excluded else ("ok", "green")


def share_bar(parts: Sequence[tuple[float, str, str]], width: int) -> Text:
    """Draw a bar of ``width`` characters divided among (amount, sign, style); every amount above zero gets its
    sign."""
    from rich.text import Text

    bar = Text(no_wrap=True)
    total = sum(amount for amount, _, _ in parts)
    for (_, sign, style), length in zip(parts, shares([amount for amount, _, _ in parts], width), strict=True):
        bar.append(sign * length, style)
    return bar if total > 0 else Text(" " * width)


def shares(amounts: Sequence[float], width: int) -> list[int]:
    """Return whole lengths that add up to ``width`` and are near the amounts' shares; a non-zero amount gets at least
    1 while there is room."""
    total = sum(amounts)
    if total <= 0:
        return [0] * len(amounts)
    exact = [amount * width / total for amount in amounts]
    lengths = [max(1, int(each)) if each > 0 else 0 for each in exact]
    while sum(lengths) > width:
        lengths[max(range(len(lengths)), key=lambda index: lengths[index])] -= 1
    while sum(lengths) < width:
        lengths[max(range(len(lengths)), key=lambda index: exact[index] - lengths[index])] += 1
    return lengths


def site_legend(width: int | None = None) -> str:
    """Return the meaning of the signs of a site's bar; as many as there is room for."""
    legend = "  ".join(_SITE_SIGNS)
    signs = len(_SITE_SIGNS)
    while width is not None and len(legend) > width:
        signs -= 1
        legend = "  ".join(_SITE_SIGNS[:signs])
    return legend


def site_bar(site: SiteInfo, width: int) -> Text:
    """Draw the holders of a site's processors: ours, others, nobody. If nothing new goes to the site, free processors
    are not idle but out of use."""
    free = max(0, site.processors - site.ours - site.others)
    rest = IDLE if site_state(site)[0] == "ok" else SHUT
    return share_bar([(site.ours, OURS, "green"), (site.others, OTHERS, "magenta"), (free, rest, "dim")], width)


def progress_bar(done: float, total: float, width: int) -> Text:
    """Draw how much of something is done."""
    done = min(max(0.0, done), total)
    return share_bar([(done, OURS, "cyan"), (max(0.0, total - done), IDLE, "dim")], width)
