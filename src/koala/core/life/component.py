"""One start of one component of a job."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from koala.core.encoded import INFINITY, Time, encoded
from koala.core.timers import Timer
from koala.model.messages import Token
from koala.model.request import JobId

if TYPE_CHECKING:
    from koala.core.life.job import Job


def job_of_token(token: Token) -> JobId:
    """Return the job of the component with this token."""
    return int(token.partition(".")[0])


class ComponentPhase(enum.IntEnum):
    """The last known progress of a claimed component."""

    SENT = 0
    ACCEPTED = 1
    READY = 2
    RUNNING = 3


class _ClaimLinks:
    __slots__ = ("job",)
    if TYPE_CHECKING:
        job: Job


@encoded
class ComponentClaim(_ClaimLinks):
    """One start of one component: from the command until the site reports that it holds nothing any more.

    A claim outlives its job's interest in it: an aborted claim counts against its site until its end is confirmed, so
    no processor is believed idle while something may still occupy it.
    """

    token: Token
    job_id: JobId
    component: int
    site: int
    processors: int
    phase: ComponentPhase = ComponentPhase.SENT
    moved: bool = False  # True if it was claimed here because the component waited too long elsewhere
    kept_off: bool = False  # True if it must not run on some nodes of its site
    given_up: bool = False  # True if the job has another claim for the component, or has lost its places
    aborting: bool = False
    abort_tries: int = 0
    due_at: Time = 0.0  # when it is due to let go, where plans are made
    placed_at: Time = INFINITY  # since when its processors were promised and not held
    held_at: Time = INFINITY  # since when it holds them and does no work, if that is to be counted
    fenced: bool = False  # whether its site was declared lost: it counts for nothing, and nobody waits for its end
    placement: int = 0  # the number of the places that it is for
    licensed: bool = False  # True if its site was asked for the job's licences with it
    number: int = 0  # its place among all claims ever made
    timer: Timer | None = None

    def bind(self, job: Job) -> None:
        """Link the claim to its job."""
        self.job = job

    def changed(self) -> None:
        """Note that the claim must be written again."""
        self.job.changes.claims[self.token] = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
