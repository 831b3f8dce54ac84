"""What the live demo says at its end: the whole picture, the table of its jobs, what the first one printed.

The same for a program is ``DemoOutcome.document``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koala.cli.demo.picture import TITLE, GridPicture, colour, columns_in, letter, what_happened
from koala.cli.demo.screen import column_s_for
from koala.cli.terminal.words import clean, places_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from koala.cli.demo.chronicle import Chronicle, Ending
    from koala.client import Client

PRINTED_BYTES_MAX = 8_192


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """What is known when all jobs have ended. ``printed`` is what the first job wrote."""

    chronicle: Chronicle
    sites: Mapping[str, int]
    exit_codes: Mapping[int, int | None]
    first: int
    printed: str
    mpi: bool

    @property
    def end_s(self) -> float:
        """When the last job ended."""
        return max(self.chronicle.since_start(each.ended_at) for each in self.chronicle.ends.values())

    @property
    def failed(self) -> list[str]:
        """The jobs that did not come to a good end."""
        chronicle = self.chronicle
        return [chronicle.names[job] for job, each in sorted(chronicle.ends.items()) if each.outcome != "done"]

    def document(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        chronicle = self.chronicle
        return {
            "duration_s": round(self.end_s, 3),
            "mpi": self.mpi,
            "sites": dict(self.sites),
            "jobs": [self._job_document(job, each) for job, each in sorted(chronicle.ends.items())],
            "transfers": [
                {
                    "file": move.file,
                    "source": move.source,
                    "target": move.target,
                    "from_s": round(move.from_s, 3),
                    "to_s": round(move.to_s, 3) if math.isfinite(move.to_s) else None,
                }
                for move in chronicle.moves
            ],
            "story": [
                {"at_s": round(remark.at_s, 3), "job": remark.job or None, "text": remark.text}
                for remark in chronicle.remarks
            ],
            "printed": self.printed,
        }

    def _job_document(self, job: int, ending: Ending) -> dict[str, Any]:
        queue_s, wait_s, run_s = times(ending)
        return {
            "id": job,
            "letter": letter(job),
            "name": self.chronicle.names[job],
            "outcome": ending.outcome,
            "exit_code": self.exit_codes[job],
            "places": [{"site": site, "processors": processors} for site, processors in ending.places],
            "queue_s": _rounded(queue_s),
            "wait_s": _rounded(wait_s),
            "run_s": _rounded(run_s),
            "runs": ending.runs,
            "failures": ending.failures,
            "preemptions": ending.preemptions,
        }


def _rounded(value_s: float | None) -> float | None:
    return None if value_s is None else round(value_s, 3)


def gather(client: Client, chronicle: Chronicle, first: int, *, mpi: bool) -> DemoOutcome:
    """Ask the daemon for what the journal does not tell."""
    return DemoOutcome(
        chronicle=chronicle,
        sites={site.name: site.processors for site in client.sites()},
        exit_codes={job: client.job(job).exit_code for job in chronicle.names},
        first=first,
        printed=client.output(first, limit=PRINTED_BYTES_MAX).text,
        mpi=mpi,
    )


def times(ending: Ending) -> tuple[float | None, float | None, float | None]:
    """Seconds in the queue until the last placement, from there to the opening of the barrier, and on to the end."""
    placed_at, started_at = ending.placed_at, ending.started_at
    queue_s = None if placed_at is None else placed_at - ending.submitted_at
    wait_s = None if placed_at is None or started_at is None else started_at - placed_at
    run_s = None if started_at is None else ending.ended_at - started_at
    return queue_s, wait_s, run_s


def print_summary(screen: Console, outcome: DemoOutcome, *, with_story: bool) -> None:
    """The picture, the story unless it was told already, the jobs and what the first one printed."""
    from rich.console import Group
    from rich.text import Text

    screen.print(f"{TITLE}\n", style="bold")
    columns = columns_in(screen.width)
    column_s = column_s_for(outcome.end_s, columns)
    picture = GridPicture(
        outcome.sites,
        outcome.chronicle,
        columns=math.ceil(outcome.end_s / column_s),
        column_s=column_s,
        processors_per_row=1,
    )
    story = [Text(""), *picture.remarks(math.inf)] if with_story else []
    printed = [Text(f"  {clean(line)}", no_wrap=True, overflow="ellipsis") for line in outcome.printed.splitlines()]
    # In a group every line keeps its own way of being cut to the width.
    screen.print(Group(*picture.rows(outcome.end_s), *story, ""))
    screen.print(_jobs_table(outcome))
    screen.print(Group("", _heading(outcome), *printed))


def _heading(outcome: DemoOutcome) -> Text:
    from rich.text import Text

    name = outcome.chronicle.names[outcome.first]
    return Text(f"{letter(outcome.first)} {name}", style=colour(outcome.first)).append(" printed:", "default")


def _jobs_table(outcome: DemoOutcome) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        title="times in seconds; those of the last start, where a job was started again",
        title_justify="left",
        title_style="dim",
    )
    table.add_column("job", no_wrap=True)
    table.add_column("sites", no_wrap=True)
    for column in ("queue", "wait", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("exit", justify="right")
    table.add_column("what happened")
    for job, ending in sorted(outcome.chronicle.ends.items()):
        code = outcome.exit_codes[job]
        table.add_row(
            Text(f"{letter(job)} {clean(outcome.chronicle.names[job])}", style=colour(job)),
            _places(ending),
            *("-" if value is None else f"{value:.1f}" for value in times(ending)),
            "-" if code is None else str(code),
            _what_happened(ending),
        )
    return table


def _places(ending: Ending) -> str:
    from koala.model.api import Place

    return places_words([Place(site=site, processors=processors) for site, processors in ending.places])


def _what_happened(ending: Ending) -> str:
    told = what_happened(ending.preemptions, ending.failures, ending.outcome)
    return f"split, {told}" if len({site for site, _ in ending.places}) > 1 else told
