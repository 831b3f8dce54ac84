"""A refusal for people: why a job found no places, what each site lacked, and whether waiting can help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from koala.cli.terminal.output import console, counted
from koala.cli.terminal.words import clean, expected

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import Explanation, JobSummary

# The table shows the nearest sites; the JSON has them all.
SITES_SHOWN_MAX = 20
NEVER_FITS = "can never fit"
# At most this many waiting jobs of one list, or of a graph, are queried; the first ones.
ASKED_MAX = 20


class ShortageView(Protocol):
    """What one site lacked, as the core or the API reports it."""

    @property
    def site(self) -> str: ...
    @property
    def wanted(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def missing(self) -> int: ...
    @property
    def cure(self) -> str: ...


class RefusalView(Protocol):
    """Why there were no places, as the core or the API reports it."""

    @property
    def policy(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def cure(self) -> str: ...
    @property
    def permanent(self) -> bool: ...
    @property
    def shortages(self) -> Sequence[ShortageView]: ...


def print_refusal(refusal: RefusalView) -> None:
    """Print the refusal in sentences, with a table of the nearest sites."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text(f"Refused by {refusal.policy}: {refusal.reason}."))
    if refusal.shortages:
        table = Table(box=None, pad_edge=False)
        table.add_column("site")
        for column in ("wanted", "idle", "missing"):
            table.add_column(column, justify="right")
        table.add_column("would help there")
        for short in sorted(refusal.shortages, key=lambda short: short.missing)[:SITES_SHOWN_MAX]:
            cells = (short.site, str(short.wanted), str(short.idle), str(short.missing), short.cure)
            table.add_row(*map(Text, cells))
        out.print(table)
        unshown = len(refusal.shortages) - SITES_SHOWN_MAX
        if unshown > 0:
            out.print(Text(f"and {counted(unshown, 'site')} more, which miss as much or more"))
    out.print(Text(f"{'It can never fit' if refusal.permanent else 'What would help'}: {refusal.cure}."))


def verdict(found: Explanation) -> str:
    """Return why idle processors alone will not help: the job can never fit, or something other than processors is
    missing. Empty if waiting may help, for example if others' plans keep the idle processors, or the job was not
    tried yet."""
    refusal = found.refusal
    if refusal is None or found.planned_before:
        return ""
    if refusal.permanent:
        return NEVER_FITS
    return "" if refusal.shortages else clean(refusal.reason)


class Verdicts:
    """The verdicts on the waiting jobs of lists, on the next elements of arrays, and when planned jobs are expected.
    A job is queried until there is a verdict, which is then kept while the job waits."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[int, str] = {}

    def of(self, jobs: Iterable[JobSummary]) -> dict[int, str]:
        """Return the known verdicts and plans of these jobs, by number."""
        from koala.client import ClientError

        asked = [job for job in jobs if job.state == "waiting" or (job.elements is not None and job.elements.waiting)]
        waiting = [job.id for job in asked if job.state in ("waiting", "unfolding")][:ASKED_MAX]
        self._known = {job: words for job, words in self._known.items() if job in waiting}
        plans = {}
        for job in waiting:
            if job in self._known:
                continue
            try:
                found = self._client.explain(job)
            except ClientError:  # a list is worth more than a note in it
                continue
            words = verdict(found)
            if words:
                self._known[job] = words
            elif found.expected_at is not None and found.next_element is None:
                plans[job] = expected(found.expected_at, found.expected_sites)
        return self._known | plans
