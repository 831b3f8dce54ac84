"""The end of the live demo: the whole picture, the table of its jobs, the output of the first one.

``DemoSummary.document`` has the same for a program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from koala.cli.demo.journal import letter
from koala.cli.demo.picture import TITLE, job_name, jobs_table, what_happened, whole_picture
from koala.cli.terminal.words import clean, places_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from koala.cli.demo.journal import JournalTimeline
    from koala.client import Client
    from koala.model.facts import JobEnded

PRINTED_BYTES_MAX = 8_192


@dataclass(frozen=True, kw_only=True)
class DemoSummary:
    """The results when all jobs have ended. ``printed`` is the first job's output."""

    timeline: JournalTimeline
    sites: Mapping[str, int]
    exit_codes: Mapping[int, int | None]
    printed: str
    mpi: bool

    @property
    def ends(self) -> list[JobEnded]:
        """How the jobs ended, in the order of their submission."""
        return [self.timeline.ends[job] for job in sorted(self.timeline.ends)]

    @property
    def end_s(self) -> float:
        """When the last job ended."""
        return max(self.timeline.since_start(each.ended_at) for each in self.ends)

    @property
    def failed(self) -> list[str]:
        """The jobs that failed."""
        return [self.timeline.names[each.job] for each in self.ends if each.outcome != "done"]

    def document(self) -> dict[str, Any]:
        """Return everything for JSON."""
        timeline = self.timeline
        return {
            "duration_s": round(self.end_s, 3),
            "mpi": self.mpi,
            "sites": dict(self.sites),
            "jobs": [self._job_document(each) for each in self.ends],
            "transfers": [_rounded(msgspec.structs.asdict(move)) for move in timeline.moves],
            "story": [
                _rounded({**msgspec.structs.asdict(remark), "job": remark.job or None}) for remark in timeline.remarks
            ],
            "printed": self.printed,
        }

    def _job_document(self, ended: JobEnded) -> dict[str, Any]:
        queue_s, wait_s, run_s = _times(ended)
        document = {
            "id": ended.job,
            "letter": letter(ended.job),
            "name": self.timeline.names[ended.job],
            "outcome": ended.outcome,
            "exit_code": self.exit_codes[ended.job],
            "places": [{"site": site, "processors": processors} for site, processors in ended.places],
            "queue_s": queue_s,
            "wait_s": wait_s,
            "run_s": run_s,
            "runs": ended.runs,
            "failures": ended.failures,
            "preemptions": ended.preemptions,
        }
        return _rounded(document)


def _rounded(document: dict[str, Any]) -> dict[str, Any]:
    """Round times to milliseconds, with null for unfinished ones."""
    return {
        name: (round(value, 3) if math.isfinite(value) else None) if isinstance(value, float) else value
        for name, value in document.items()
    }


def gather(client: Client, timeline: JournalTimeline, *, mpi: bool) -> DemoSummary:
    """Query the daemon for what the journal does not have."""
    return DemoSummary(
        timeline=timeline,
        sites={site.name: site.processors for site in client.sites()},
        exit_codes={job: client.job(job).exit_code for job in timeline.names},
        printed=client.output(min(timeline.names), limit=PRINTED_BYTES_MAX).text,
        mpi=mpi,
    )


def print_summary(screen: Console, summary: DemoSummary, *, with_story: bool) -> None:
    """Print the picture, the story unless it was shown already, the jobs and the output of the first one."""
    from rich.console import Group
    from rich.text import Text

    screen.print(f"{TITLE}\n", style="bold")
    picture = whole_picture(summary.sites, summary.timeline, summary.end_s, screen.width, processors_per_row=1)
    story = [Text(""), *picture.remarks(math.inf)] if with_story else []
    printed = [Text(f"  {clean(line)}", no_wrap=True, overflow="ellipsis") for line in summary.printed.splitlines()]
    first = min(summary.timeline.names)
    # In a group every line keeps its own way of being cut to the width.
    screen.print(Group(*picture.rows(summary.end_s), *story, ""))
    screen.print(_table(summary))
    screen.print(Group("", job_name(first, summary.timeline.names[first]).append(" printed:"), *printed))


def _table(summary: DemoSummary) -> Table:
    from koala.model.api import Place

    rows = []
    for ended in summary.ends:
        code = summary.exit_codes[ended.job]
        cells = ["-" if value is None else f"{value:.1f}" for value in _times(ended)]
        places = [Place(site=site, processors=processors) for site, processors in ended.places]
        split = "split, " if len({place.site for place in places}) > 1 else ""
        rows.append(
            (
                job_name(ended.job, summary.timeline.names[ended.job]),
                places_words(places),
                [*cells, "-" if code is None else str(code)],
                split + what_happened(ended.preemptions, ended.failures, ended.outcome),
            )
        )
    return jobs_table(("queue", "wait", "run", "exit"), rows)


def _times(ended: JobEnded) -> tuple[float | None, float | None, float | None]:
    """Return the seconds in the queue until the last placement, from there to the opening of the barrier, and on to
    the end."""
    placed_at, started_at = ended.placed_at, ended.started_at
    queue_s = None if placed_at is None else placed_at - ended.submitted_at
    wait_s = None if placed_at is None or started_at is None else started_at - placed_at
    run_s = None if started_at is None else ended.ended_at - started_at
    return queue_s, wait_s, run_s
