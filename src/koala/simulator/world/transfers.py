"""The transfers of a simulated grid: latency first, then a fair share of the link, then an answer.

``koala.simulator.world.links`` divides the bandwidth of a link; the scheduler chooses the replica.
"""

from __future__ import annotations

from koala.model.grid import Grid
from koala.model.messages import (
    CancelTransfer,
    CollectOutputs,
    LinkProbed,
    OutputsCollected,
    ProbeLink,
    StartTransfer,
    TransferEnded,
    TransferId,
)
from koala.model.outputs import MadeOutput
from koala.simulator.world.delivery import Delivery
from koala.simulator.world.event_heap import LINK_DELIVERS, LINK_IS_JOINED, EventHeap
from koala.simulator.world.links import FairLink, LinkTable, LinkTransfer
from koala.simulator.world.site import SimulatedSite


class SimulatedTransfers:
    """Performs the commands about transfers. A transfer's id names it for ever, like a component's token."""

    __slots__ = (
        *("_delivery", "_ended", "_event_heap", "_links", "_output_bytes_max", "_seed", "_sites"),
        *("active", "moved_bytes"),
    )

    def __init__(
        self, grid: Grid, sites: dict[str, SimulatedSite], seed: int, event_heap: EventHeap, delivery: Delivery
    ) -> None:
        self._links = LinkTable(grid)
        self._output_bytes_max = grid.scheduler.output_bytes_max
        self._sites = sites
        self._seed = seed
        self._event_heap = event_heap
        self._delivery = delivery
        self.active: dict[TransferId, LinkTransfer] = {}
        self._ended: dict[TransferId, TransferEnded | None] = {}
        self.moved_bytes = 0

    def start(self, command: StartTransfer, now: float) -> None:
        """Begin it; repeat the outcome of one that has ended."""
        name = command.transfer
        if name in self.active:
            return
        if name in self._ended:
            ended = self._ended[name]
            if ended is not None:
                self._delivery.repeat(ended, now)
            return
        for end in (command.source, command.target):
            if not self._sites[end].is_reachable:
                self._end(name, now, f"{end} is down" if self._sites[end].down else f"{end} cannot be reached")
                return
        if command.source == command.target or command.size_bytes == 0:
            self._end(name, now, "")
            return
        channel = self._delivery.channel
        breaks_at = None if channel is None else channel.transfer_breaks_at(name, self._seed)
        work_bytes = command.size_bytes * (1.0 if breaks_at is None else breaks_at)
        link = self._links.between(command.source, command.target)
        transfer = LinkTransfer(name, link, command.source, command.target, work_bytes, breaks_at is not None)
        self.active[name] = transfer
        self._event_heap.add(now + link.latency_s, LINK_IS_JOINED, transfer)

    def joins(self, transfer: LinkTransfer, sequence: int, at: float) -> None:
        """Let the bytes flow after the latency."""
        if not transfer.cancelled:
            transfer.link.join(transfer, at)
            self._plan_delivery(transfer.link, at)

    def _plan_delivery(self, link: FairLink, now: float) -> None:
        at = link.next_delivery_at(now)
        link.timer = 0 if at is None else self._event_heap.add(at, LINK_DELIVERS, link)

    def delivers(self, link: FairLink, sequence: int, at: float) -> None:
        """End the next transfer of the link, unless the plan has changed meanwhile."""
        if link.timer != sequence:
            return
        for transfer in link.deliver(at):
            del self.active[transfer.name]
            self.moved_bytes += int(transfer.work_bytes)
            self._end(transfer.name, at, "the connection broke" if transfer.breaks else "")
        self._plan_delivery(link, at)

    def _end(self, name: TransferId, now: float, problem: str) -> None:
        ended = TransferEnded(at=now, transfer=name, ok=not problem, reason=problem)
        self._ended[name] = ended
        self._delivery.answer(ended)

    def cancel(self, command: CancelTransfer, now: float) -> None:
        """Stop it for good, without an answer. Only a stray message could name it again."""
        transfer = self.active.pop(command.transfer, None)
        if self._delivery.channel is None:
            self._ended.pop(command.transfer, None)
        else:
            self._ended[command.transfer] = None
        if transfer is not None:
            self._take_off(transfer, now)

    def _take_off(self, transfer: LinkTransfer, now: float) -> None:
        if transfer.link.leave(transfer, now):
            self._plan_delivery(transfer.link, now)
        transfer.cancelled = True

    def probe(self, command: ProbeLink, now: float) -> None:
        """Measure the link: its latency, and the share of a further transfer now. The few bytes of a probe slow
        nobody down."""
        for end in (command.source, command.target):
            if not self._sites[end].is_reachable:
                reason = f"{end} cannot be reached"
                told = LinkProbed(at=now, source=command.source, target=command.target, reason=reason)
                self._delivery.answer(told)
                return
        link = self._links.between(command.source, command.target)
        bytes_per_s = link.bytes_per_s / (link.active + 1)
        at = now + link.latency_s + (command.size_bytes / bytes_per_s if bytes_per_s > 0 else 0.0)
        told = LinkProbed(
            at=at,
            source=command.source,
            target=command.target,
            latency_s=link.latency_s,
            bytes_per_s=bytes_per_s,
            size_bytes=command.size_bytes,
        )
        channel = self._delivery.channel
        for delay_s in (0.0,) if channel is None else channel.answer_delays_s():
            self._delivery.plan(told, at + delay_s)

    def collect(self, command: CollectOutputs, now: float) -> None:
        """Collect the outputs of a component, each of the size that the job declares; a copy to another site takes
        its link's time. A site that cannot be reached answers a later order."""
        channel = self._delivery.channel
        targets = [each.to for each in command.outputs if each.to in self._sites and each.to != command.site]
        if not all(self._sites[site].is_reachable for site in (command.site, *targets)):
            return
        if channel is not None and channel.loses_command():
            return
        took_s = 0.0
        made = []
        problem = ""
        for output in command.outputs:
            if output.size_bytes > self._output_bytes_max:
                problem = f"output {output.path!r} has more than {self._output_bytes_max} bytes (output_bytes_max)"
                break
            also_at: tuple[str, ...] = ()
            if output.to in targets:
                link = self._links.between(command.site, output.to)
                took_s += link.latency_s + (output.size_bytes / link.bytes_per_s if output.size_bytes else 0.0)
                also_at = (output.to,)
            made.append(MadeOutput(path=output.path, size_bytes=output.size_bytes, checksum="", also_at=also_at))
        told = OutputsCollected(
            at=now + took_s, job=command.job, token=command.token, outputs=tuple(made), problem=problem
        )
        if took_s == 0.0:
            self._delivery.answer(told)
            return
        for delay_s in (0.0,) if channel is None else channel.answer_delays_s():
            self._delivery.plan(told, told.at + delay_s)

    def break_all_at(self, site: str, now: float, why: str = "went down") -> None:
        """Break every transfer from or to a site that goes down or is cut off."""
        for transfer in [each for each in self.active.values() if site in (each.source, each.target)]:
            del self.active[transfer.name]
            self._take_off(transfer, now)
            self._end(transfer.name, now, f"{site} {why}")
