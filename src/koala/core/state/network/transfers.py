"""Files on their way to sites for placed jobs.

There is one transfer for each (file, piece, site), shared by the jobs that need it, and repeated from another replica
when it breaks. The forecasts learn about links from them.
"""

from __future__ import annotations

from koala.core.changes import Changes
from koala.core.encoded import INFINITY, NO_ENTRIES, NO_ITEMS
from koala.core.life.job import Job
from koala.core.life.places import FileTransfer, JobPlaces, TransferKey
from koala.core.state.network.forecasts import LinkForecasts
from koala.model.facts import Adds
from koala.model.messages import AnyCommand, CancelTransfer, StartTransfer, TransferId
from koala.policies.interface import Input, View, link_s


class Transfers:
    """All transfers that some job needs."""

    def __init__(self, view: View, forecasts: LinkForecasts, changes: Changes) -> None:
        self._changes = changes
        self.view = view
        self.forecasts = forecasts
        self.by_id: dict[TransferId, FileTransfer] = {}
        self.by_key: dict[TransferKey, FileTransfer] = {}
        self.sequence = 0

    def want(self, job: Job, needed: Input, site: int, now: float, commands: Adds[AnyCommand]) -> FileTransfer:
        """Ensure that the file gets to the site for this job, by a running transfer if there is one."""
        key = (needed.file, needed.chunk, site)
        transfer = self.by_key.get(key)
        if transfer is None:
            transfer = self.by_key[key] = FileTransfer(key, needed.size_bytes)
            self._start(transfer, needed.source, now, commands)
        placed = job.placed
        if key not in placed.transfers:
            job.changes.places[job.id] = None
            self.changed(transfer)
            transfer.jobs[job.id] = None
            placed.transfers = placed.transfers or {}
            placed.transfers[key] = transfer
            if not transfer.done:
                placed.transfers_open += 1
        return transfer

    def remaining_s(self, key: TransferKey, now: float) -> float:
        """Return the remaining time of a piece that is on its way to a site; infinity if it is not."""
        transfer = self.by_key.get(key)
        return INFINITY if transfer is None else transfer.remaining_s(now)

    def _start(self, transfer: FileTransfer, source: int, now: float, commands: Adds[AnyCommand]) -> None:
        self.sequence += 1
        file, chunk, target = transfer.key
        transfer.id = f"t{self.sequence}"
        transfer.source = source
        transfer.started_at = now
        transfer.estimate_s = link_s(source, target, transfer.size_bytes, self.view)
        transfer.tries += 1
        self.by_id[transfer.id] = transfer
        names = self.view.names
        commands.append(
            StartTransfer(
                transfer=transfer.id,
                file=file,
                source=names[source],
                target=names[target],
                size_bytes=transfer.size_bytes,
                chunk=chunk,
            )
        )

    def changed(self, transfer: FileTransfer) -> None:
        """Note that the transfer must be written again."""
        self._changes.transfers[transfer.key] = None

    def arrived(self, transfer: FileTransfer, now: float) -> None:
        """Note that the transfer has arrived; the forecast of its link learns from it."""
        transfer.done = True
        self.changed(transfer)
        self._measure(transfer, now)

    def overdue(self, transfer: FileTransfer, now: float) -> None:
        """Note that the transfer is slower than this already.

        The link is believed to be no faster, so that the next try, over the same crowded link, gets more time.
        """
        self._measure(transfer, now)

    def _measure(self, transfer: FileTransfer, now: float) -> None:
        self.forecasts.transferred(
            transfer.source,
            transfer.key[2],
            at=now,
            size_bytes=transfer.size_bytes,
            took_s=now - transfer.started_at,
            arrived=transfer.done,
        )

    def again(self, transfer: FileTransfer, now: float, commands: Adds[AnyCommand]) -> bool:
        """Start a broken transfer again from the best replica that has not failed, or the best of all if all have.

        Returns False if the file has no replica any more.
        """
        del self.by_id[transfer.id]
        self.changed(transfer)
        if transfer.source not in transfer.failed_sources:
            transfer.failed_sources.append(transfer.source)
        known = self.view.files.get(transfer.key[0])
        holders = known.holders if known is not None else ()
        fresh = [holder for holder in holders if holder not in transfer.failed_sources] or list(holders)
        if not fresh:
            return False
        target = transfer.key[2]
        best = min(fresh, key=lambda holder: (link_s(holder, target, transfer.size_bytes, self.view), holder))
        self._start(transfer, best, now, commands)
        return True

    def keep_only_needed(self, job: Job, commands: Adds[AnyCommand]) -> None:
        """Let go of what the job does not need any more since it moved a component."""
        placed = job.placed
        needed = {key for keys in placed.needs for key in keys}
        for key in [key for key in placed.transfers if key not in needed]:
            transfer = placed.transfers.pop(key)
            if not transfer.done:
                placed.transfers_open -= 1
            self._let_go(transfer, job, commands)
        placed.transfers = self.needed(placed)
        job.changes.places[job.id] = None

    def needed(self, placed: JobPlaces) -> dict[TransferKey, FileTransfer]:
        """Return what the components need there, in their order."""
        return {key: self.by_key[key] for keys in placed.needs for key in keys}

    def leave(self, job: Job, commands: Adds[AnyCommand]) -> None:
        """Release all files of the job."""
        placed = job.placed
        for transfer in placed.transfers.values():
            self._let_go(transfer, job, commands)
        job.changes.places[job.id] = None
        placed.transfers = NO_ENTRIES
        placed.needs = NO_ITEMS
        placed.transfers_open = 0

    def _let_go(self, transfer: FileTransfer, job: Job, commands: Adds[AnyCommand]) -> None:
        """Release a transfer for the job; if no other job needs it, stop it, or delete the file that has arrived."""
        self.changed(transfer)
        del transfer.jobs[job.id]
        if transfer.jobs:
            return
        del self.by_key[transfer.key]
        self.by_id.pop(transfer.id, None)
        if transfer.timer is not None:
            transfer.timer.cancel()
        commands.append(CancelTransfer(transfer=transfer.id))
