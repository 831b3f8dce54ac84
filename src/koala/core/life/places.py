"""The places of a job: where its components go, and what is claimed and brought there."""

from __future__ import annotations

from koala.core.encoded import NO_ENTRIES, NO_ITEMS, Time, encoded
from koala.core.life.component import ComponentClaim
from koala.core.life.transfer import FileTransfer, TransferKey
from koala.model.request import SiteName
from koala.policies.interface import Spots


class _PlacesLinks:
    __slots__ = ("claims", "link_demands", "transfers", "transfers_open")
    claims: list[ComponentClaim | None]  # by component
    transfers: dict[TransferKey, FileTransfer]  # those in ``needs``, in their order
    transfers_open: int
    link_demands: list[tuple[int, int]]  # (link, bit/s), while they count


@encoded
class JobPlaces(_PlacesLinks):
    """Where each component goes, and what is claimed and brought there.

    Of a job that is ``UNWINDING`` or ``COLLECTING`` it says where the components ran; nothing is held there any more.
    """

    spots: Spots
    places: tuple[tuple[SiteName, int], ...]  # the same by the names of the sites
    start_at: Time  # the job start time
    hold_until: Time = 0.0  # when the job is due to end
    needs: list[tuple[TransferKey, ...]] = NO_ITEMS  # by component, its transfers
    ready: int = 0  # how many components wait at the barrier
    # What it sends between its sites.
    observed: bool = False  # whether its bandwidth counts in what was observed
    observed_bisection_bit_s: float = 0.0  # and as what
    # What one processor sends: as measured, and as it is believed where that is not what the job declares.
    measured_bit_s: float | None = None
    believed_bit_s: float | None = None
    belief: str = ""  # where that is from: measured, or learned of jobs of its name

    def __post_init__(self) -> None:
        """Nothing is claimed or brought yet."""
        self.claims = [None] * len(self.spots.sites)
        self.transfers = NO_ENTRIES
        self.transfers_open = 0
        self.link_demands = NO_ITEMS

    def at(self, component: int) -> tuple[int, int]:
        """The site of a component, and how many processors it has there."""
        return self.spots.sites[component], self.spots.sizes[component]
