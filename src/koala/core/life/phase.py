"""The common part of all phases of a job.

A phase has exactly the fields that its state needs. A job enters its next phase by ``Job.become``; the data of a
phase ends with the phase, so nothing is ever reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from koala.core.encoded import NO_ENTRIES, Time, encoded
from koala.core.life.places import JobPlaces
from koala.core.life.states import JobState


class Phase:
    """The position of a job in its life, with the data that exists only there."""

    __slots__ = ()
    state: ClassVar[JobState]
    has_places: ClassVar[bool] = False
    if TYPE_CHECKING:

        @property
        def placement(self) -> JobPlaces | None:
            """The places, if the phase has them."""


@encoded
class HasPlaces(Phase):
    """A phase in which the components of the job have their places."""

    has_places: ClassVar[bool] = True
    placement: JobPlaces


@encoded
class BeforeBarrier(HasPlaces):
    """A phase of a placed job whose components wait for each other."""

    early_until: float | None = None  # until when it keeps what it claimed before its planned start


@encoded
class AwaitsClaims(BeforeBarrier):
    """A phase in which the job stands in the claiming queue."""

    claim_at: Time = 0.0
    claim_sequence: int = 0
    claim_resumed: bool = False  # the next try continues the last one: preempted processors came free
    earmarks: dict[int, int] = NO_ENTRIES  # component -> site


@encoded
class HasBegun(HasPlaces):
    """A phase after the barrier has opened."""

    started_at: float
