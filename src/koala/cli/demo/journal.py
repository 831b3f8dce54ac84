"""The timeline of the live demo, read only from the daemon's journal.

Times are seconds since the first entry about a file or a job.
"""

from __future__ import annotations

import re
from bisect import insort
from typing import TYPE_CHECKING, Any

import msgspec

from koala.cli.terminal.words import size
from koala.model.facts import JobEnded
from koala.simulator.report.timeline import Remark, Timeline

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JournalEntry

NO_JOB = 0
_JOB = re.compile(r"\bjob (\d+)\b")


def letter(job: int) -> str:
    """Return the letter of a job in the picture."""
    return chr(ord("A") + (job - 1) % 26)


class JournalTimeline(Timeline):
    """The timeline so far; ``read`` takes in new entries. The caller sets the ``priorities`` of jobs, which the
    journal does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, JobEnded] = {}
        self.started: set[int] = set()
        self.priorities: dict[int, str] = {}
        self._zero: float | None = None
        self._last_seq = 0

    def since_start(self, at: float) -> float:
        """Convert a time of the daemon's clock to seconds of the demo."""
        return 0.0 if self._zero is None else max(0.0, at - self._zero)

    def read(self, client: Client) -> None:
        """Take in what has happened since the last call."""
        for entry in client.each_entry(after=self._last_seq):
            self._last_seq = entry.seq
            self.take(entry)

    def remark(self, at_s: float, job: int, text: str) -> None:
        """Add a remark, perhaps on a moment ago; jobs have the letters of the picture."""
        text = _JOB.sub(lambda found: f"job {letter(int(found[1]))}", text)
        insort(self.remarks, Remark(at_s, job, text), key=lambda each: each.at_s)

    def take(self, entry: JournalEntry) -> None:
        """Take in one entry."""
        if self._zero is None and entry.what in ("FileChanged", "JobSubmitted"):
            self._zero = entry.at
        at_s, data = self.since_start(entry.at), entry.data
        match entry.what:
            case "JobSubmitted":
                job, request = data["job"], data["request"]
                priority = self.priorities.get(job)
                self.submitted(at_s, job, request["name"], request["kind"], request["processors"], priority)
            case "JobPlaced":
                verb = "split" if len({site for site, _ in data["places"]}) > 1 else "placed"
                places = ", ".join(f"{processors} on {site}" for site, processors in data["places"])
                self.remark(at_s, data["job"], f"{verb}: {places}")
            case "StartComponent":
                self.claimed(at_s, data["token"], data["job"], data["site"], data["processors"])
            case "ReleaseBarrier":
                if self.barrier_opened(at_s, data["job"], data["tokens"]):
                    self.started.add(data["job"])
            case "ComponentEnded":
                self.component_ended(at_s, data["token"])
            case "JobRequeued":
                self.started.discard(data["job"])
                self.remark(at_s, data["job"], f"requeued: {data['reason']}")
            case "JobEnded":
                ended = self.ends[data["job"]] = msgspec.convert(data, JobEnded)
                self.remark(at_s, ended.job, f"{ended.outcome}: {ended.reason}" if ended.reason else ended.outcome)
            case "SiteSilent":
                self.site_silent(at_s, data["site"])
            case "SiteReported":
                self.site_reported(at_s, data["site"])
            case what:
                self._take_file(at_s, what, data)

    def _take_file(self, at_s: float, what: str, data: dict[str, Any]) -> None:
        match what:
            case "FileChanged" if data.get("replicas"):
                where = " and ".join(data["replicas"])
                self.remark(at_s, NO_JOB, f"{data['file']} ({size(data['size_bytes'])}) is at {where}")
            case "StartTransfer":
                self.transfer_started(at_s, data["transfer"], data["file"], data["source"], data["target"])
                self.remark(at_s, NO_JOB, f"{data['file']} goes from {data['source']} to {data['target']}")
            case "TransferEnded":
                move = self.transfer_ended(at_s, data["transfer"])
                if move is not None:
                    how = "has arrived" if data["ok"] else f"did not arrive ({data.get('reason', '')})"
                    self.remark(at_s, NO_JOB, f"{move.file} {how} at {move.target}")
            case "CancelTransfer":
                self.transfer_ended(at_s, data["transfer"])
