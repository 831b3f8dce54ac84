"""Whether a job that waits can be helped by waiting: what the last try to place it says, in a few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JobSummary, RefusalInfo

NEVER_FITS = "can never fit"
# How many of the waiting jobs of one list are asked about; the first ones listed.
ASKED_MAX = 20


def verdict(refusal: RefusalInfo | None) -> str:
    """Why idle processors alone will not help: the job can never fit, or a thing is missing that is no processor.
    Empty where waiting may help, or where the job was not tried yet."""
    if refusal is None:
        return ""
    if refusal.permanent:
        return NEVER_FITS
    return "" if refusal.shortages else clean(refusal.reason)


class Verdicts:
    """The verdicts on the waiting jobs of lists. A job is asked about until there is one, which is then remembered
    while the job waits."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[int, str] = {}

    def of(self, jobs: Iterable[JobSummary]) -> dict[int, str]:
        """The verdicts that there are on these jobs, by number."""
        from koala.client import ClientError

        waiting = [job.id for job in jobs if job.state == "waiting"][:ASKED_MAX]
        self._known = {job: told for job, told in self._known.items() if job in waiting}
        for job in waiting:
            if job in self._known:
                continue
            try:
                told = verdict(self._client.explain(job).refusal)
            except ClientError:  # a list is worth more than a note in it
                continue
            if told:
                self._known[job] = told
        return dict(self._known)
