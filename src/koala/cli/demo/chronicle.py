"""What the live demo knows of its run: the daemon's journal, read entry by entry into what can be drawn and told.

Nothing is in it that the daemon did not say. Times are seconds since the first thing that was told.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from koala.cli.demo.picture import letter
from koala.cli.terminal.words import size
from koala.simulator.report.timeline import Hold, Move, Remark, Silence

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JobSummary, JournalEntry

NO_JOB = 0
_JOB = re.compile(r"\bjob (\d+)\b")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, as the journal says it. ``started_at`` belongs to the last start, as does ``placed_at``."""

    outcome: str
    submitted_at: float
    placed_at: float | None
    started_at: float | None
    ended_at: float
    places: tuple[tuple[str, int], ...]
    runs: int
    failures: int
    preemptions: int


class Chronicle:
    """The record of the run so far; ``read`` brings it up to date."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.holds: list[Hold] = []
        self.moves: list[Move] = []
        self.silences: list[Silence] = []
        self.ends: dict[int, Ending] = {}
        self.placements: dict[int, list[tuple[tuple[str, int], ...]]] = {}
        self.started: set[int] = set()
        self.remarks: list[Remark] = []
        self._priorities: dict[int, str] = {}
        self._zero: float | None = None
        self._last_seq = 0
        self._by_token: dict[str, Hold] = {}
        self._by_transfer: dict[str, Move] = {}
        self._takers: dict[str, Callable[[float, dict[str, Any]], None]] = {
            "FileChanged": self._file_changed,
            "JobSubmitted": self._submitted,
            "JobPlaced": self._placed,
            "StartTransfer": self._transfer_started,
            "TransferEnded": self._transfer_ended,
            "CancelTransfer": self._transfer_cancelled,
            "StartComponent": self._claimed,
            "ReleaseBarrier": self._released,
            "ComponentEnded": self._component_ended,
            "JobRequeued": self._requeued,
            "JobEnded": self._ended,
            "SiteSilent": self._silent,
            "SiteReported": self._reported,
        }

    def since_start(self, at: float) -> float:
        """A time of the daemon's clock as seconds of the demo."""
        return 0.0 if self._zero is None else max(0.0, at - self._zero)

    def read(self, client: Client) -> None:
        """Take in what has happened since the last time."""
        for entry in client.each_entry(after=self._last_seq):
            self._last_seq = entry.seq
            self.take(entry)

    def introduce(self, job: JobSummary) -> None:
        """Know a submitted job's priority, which the journal does not tell."""
        self._priorities[job.id] = job.priority

    def add(self, at: float, job: int, text: str) -> None:
        """Something that the daemon said elsewhere, such as the reason why a job waits."""
        remark = Remark(self.since_start(at), job, _with_letters(text))
        insort(self.remarks, remark, key=lambda each: each.at_s)  # it may have been said a moment ago

    def take(self, entry: JournalEntry) -> None:
        """Take in one entry."""
        taker = self._takers.get(entry.what)
        if taker is None:
            return
        if self._zero is None and entry.what in ("FileChanged", "JobSubmitted"):
            self._zero = entry.at
        taker(entry.at, entry.data)

    # ---------------------------------------------------------------------------------- one kind of entry each

    def _file_changed(self, at: float, data: dict[str, Any]) -> None:
        if data.get("replicas"):
            where = " and ".join(data["replicas"])
            self.add(at, NO_JOB, f"{data['file']} ({size(data['size_bytes'])}) is at {where}")

    def _submitted(self, at: float, data: dict[str, Any]) -> None:
        job, request = data["job"], data["request"]
        self.names[job] = request["name"]
        priority = self._priorities.get(job)
        rank = f", {priority} priority" if priority is not None else ""
        self.add(at, job, f"submitted: {request['kind']}, {request['processors']} processors{rank}")

    def _placed(self, at: float, data: dict[str, Any]) -> None:
        places = tuple((site, processors) for site, processors in data["places"])
        self.placements.setdefault(data["job"], []).append(places)
        verb = "split" if len({site for site, _ in places}) > 1 else "placed"
        self.add(at, data["job"], f"{verb}: {', '.join(f'{processors} on {site}' for site, processors in places)}")

    def _transfer_started(self, at: float, data: dict[str, Any]) -> None:
        move = Move(data["file"], data["source"], data["target"], self.since_start(at))
        self._by_transfer[data["transfer"]] = move
        self.moves.append(move)
        self.add(at, NO_JOB, f"{data['file']} goes from {data['source']} to {data['target']}")

    def _transfer_ended(self, at: float, data: dict[str, Any]) -> None:
        move = self._transfer_over(at, data)
        if move is not None:
            how = "has arrived" if data["ok"] else f"did not arrive ({data.get('reason', '')})"
            self.add(at, NO_JOB, f"{move.file} {how} at {move.target}")

    def _transfer_cancelled(self, at: float, data: dict[str, Any]) -> None:
        self._transfer_over(at, data)

    def _transfer_over(self, at: float, data: dict[str, Any]) -> Move | None:
        move = self._by_transfer.get(data["transfer"])
        if move is not None:
            move.to_s = min(self.since_start(at), move.to_s)
        return move

    def _claimed(self, at: float, data: dict[str, Any]) -> None:
        hold = Hold(data["job"], data["site"], data["processors"], self.since_start(at))
        self._by_token[data["token"]] = hold
        self.holds.append(hold)

    def _released(self, at: float, data: dict[str, Any]) -> None:
        # One that is repeated, because an answer was late, does not start the application again.
        at_s = self.since_start(at)
        waiting = [hold for token in data["tokens"] if (hold := self._by_token[token]).runs_s > at_s]
        for hold in waiting:
            hold.runs_s = at_s
        if waiting:
            self.started.add(data["job"])
            self.add(at, data["job"], "all components are at the barrier: it runs")

    def _component_ended(self, at: float, data: dict[str, Any]) -> None:
        hold = self._by_token.get(data["token"])
        if hold is not None:
            hold.to_s = min(self.since_start(at), hold.to_s)

    def _requeued(self, at: float, data: dict[str, Any]) -> None:
        self.started.discard(data["job"])
        self.add(at, data["job"], f"requeued: {data['reason']}")

    def _ended(self, at: float, data: dict[str, Any]) -> None:
        ending = msgspec.convert(data, Ending)
        self.ends[data["job"]] = ending
        reason = data.get("reason")
        self.add(at, data["job"], f"{ending.outcome}: {reason}" if reason else ending.outcome)

    def _silent(self, at: float, data: dict[str, Any]) -> None:
        self.silences.append(Silence(data["site"], self.since_start(at)))

    def _reported(self, at: float, data: dict[str, Any]) -> None:
        for silence in self.silences:
            if silence.site == data["site"]:
                silence.to_s = min(self.since_start(at), silence.to_s)


def _with_letters(text: str) -> str:
    """The daemon's words with the letters of the picture for the numbers of jobs."""
    return _JOB.sub(lambda found: f"job {letter(int(found[1]))}", text)
