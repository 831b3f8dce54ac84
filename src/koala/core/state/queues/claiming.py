"""The claiming queue: placed jobs, by their claiming times."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from koala.core.encoded import INFINITY
from koala.core.life.job import Job


class ClaimingQueue:
    """Placed jobs with components still to be claimed, ordered by their job claiming time (JCT)."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Job]] = []
        self.sequence = 0
        self.next_at = INFINITY  # the earliest claiming time

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, _, job in self._entries)

    def push(self, job: Job, claim_at: float) -> None:
        self.sequence += 1
        self.stand(job, claim_at, self.sequence)

    def stand(self, job: Job, claim_at: float, sequence: int) -> None:
        """Enter the job at this claiming time; equal times are served in the order of the sequence."""
        phase = job.awaiting_claims
        phase.claim_at = claim_at
        phase.claim_sequence = sequence
        insort(self._entries, (claim_at, sequence, job), key=_claim_order)
        self.next_at = self._entries[0][0]

    def remove(self, job: Job) -> None:
        """Remove the job; without effect if it is not in the queue."""
        phase = job.awaiting_claims
        place = bisect_left(self._entries, (phase.claim_at, phase.claim_sequence), key=_claim_order)
        if place < len(self._entries) and self._entries[place][2] is job:
            del self._entries[place]
            self.next_at = self._entries[0][0] if self._entries else INFINITY

    def move(self, job: Job, claim_at: float) -> None:
        """Give a job that is in the queue another claiming time."""
        self.remove(job)
        self.push(job, claim_at)

    def head(self) -> Job:
        return self._entries[0][2]


def _claim_order(entry: tuple[float, int, Job]) -> tuple[float, int]:
    return entry[0], entry[1]
