"""The places of a job: where its components go, and what is claimed and transferred there."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from koala.core.encoded import NO_ENTRIES, NO_ITEMS, Time, encoded
from koala.core.life.component import ComponentClaim
from koala.core.timers import Timer
from koala.model.messages import TransferId
from koala.model.request import JobId, SiteName
from koala.policies.interface import Spots

# A late transfer is never believed to need less than this.
LATE_S_MIN = 1.0

# A file, its piece (offset and size in bytes; None for the whole file), and the index of the site that needs it.
TransferKey: TypeAlias = tuple[str, tuple[int, int] | None, int]


@encoded
class FileTransfer:
    """One file or piece on its way to one site for the jobs that need it there, or there already."""

    key: TransferKey
    size_bytes: int
    id: TransferId = ""
    source: int = -1
    started_at: float = 0.0
    estimate_s: Time = 0.0
    jobs: dict[JobId, None] = field(default_factory=dict)  # in the order in which they came
    done: bool = False
    tries: int = 0
    failed_sources: list[int] = field(default_factory=list)
    timer: Timer | None = None

    def remaining_s(self, now: float) -> float:
        """Return the remaining time: as estimated or, for a late transfer, as long as it is already late."""
        if self.done:
            return 0.0
        remaining_s = self.started_at + self.estimate_s - now
        return remaining_s if remaining_s >= 0.0 else max(LATE_S_MIN, -remaining_s)


class _PlacesLinks:
    __slots__ = ("claims", "link_demands", "transfers", "transfers_open")
    claims: list[ComponentClaim | None]  # by component
    transfers: dict[TransferKey, FileTransfer]  # the transfers in ``needs``, in their order
    transfers_open: int
    link_demands: list[tuple[int, int]]  # (link, bit/s), while they count


@encoded
class JobPlaces(_PlacesLinks):
    """Where each component goes, and what is claimed and transferred there.

    For a job that is ``UNWINDING`` or ``COLLECTING`` it holds where the components ran; nothing is held
    there any more.
    """

    spots: Spots
    places: tuple[tuple[SiteName, int], ...]  # the same by site name
    start_at: Time  # the job start time
    hold_until: Time = 0.0  # when the job is due to end
    needs: list[tuple[TransferKey, ...]] = NO_ITEMS  # by component, its transfers
    number: int = 0  # of jobs with licences, the starts before these places: it tells placements apart
    ready: int = 0  # how many components wait at the barrier
    # Its traffic between its sites.
    observed: bool = False  # True if its bandwidth is included in the observed traffic
    observed_bisection_bit_s: float = 0.0  # and with this value
    # What one processor sends: as measured, and as believed where that differs from the job's declaration.
    measured_bit_s: float | None = None
    believed_bit_s: float | None = None
    belief: str = ""  # the source of the belief: measured, or learned from jobs of its name

    def __post_init__(self) -> None:
        """Begin with nothing claimed or transferred."""
        self.claims = [None] * len(self.spots.sites)
        self.transfers = NO_ENTRIES
        self.transfers_open = 0
        self.link_demands = NO_ITEMS

    def at(self, component: int) -> tuple[int, int]:
        """Return the site of a component and its processors there."""
        return self.spots.sites[component], self.spots.sizes[component]
