"""Input files for placed jobs: required transfers, arrivals and failures."""

from __future__ import annotations

from koala.core.ending import JobEnding
from koala.core.life.job import Job
from koala.core.life.places import FileTransfer
from koala.core.life.states import JobState
from koala.core.running import JobRunning
from koala.core.state.ledger import Ledger
from koala.core.timers import Alarm
from koala.model.errors import Fault
from koala.model.facts import FileArrived, InputForgotten, TransferBroke
from koala.model.messages import CancelTransfer, FileChanged, TransferEnded, TransferId
from koala.policies.interface import FileAt, inputs

# With places, before the barrier opens; and without places. An array checks when it makes an element.
_HAS_PLACES = frozenset({JobState.PLACED, JobState.CLAIMING, JobState.STARTING})
_NOT_STARTED = frozenset({*_HAS_PLACES, JobState.HELD, JobState.WAITING})


class JobStaging:
    """Transfers files, tries again from other replicas, and sends a job back if a file is unavailable."""

    def __init__(self, ledger: Ledger, ending: JobEnding, running: JobRunning) -> None:
        self.ledger = ledger
        self.ending = ending
        self.running = running
        ledger.timers.on(Alarm.TRANSFER_OVERDUE, self._overdue)

    def transfer_files(self, job: Job) -> float:
        """Start the transfers of the job's files; return their estimated duration (FTT).

        Transfers over one link come one after the other, also those for several components: FTT is the largest sum of
        the transfers over a link.
        """
        placed = job.placed
        placed.needs = [()] * len(placed.spots.sites)
        for component in range(len(placed.spots.sites)):
            self._transfer_files_of(job, component)
        by_link: dict[tuple[int, int], float] = {}
        for transfer in placed.transfers.values():
            link = (transfer.source, transfer.key[2])
            by_link[link] = by_link.get(link, 0.0) + transfer.remaining_s(self.ledger.now)
        return max(by_link.values(), default=0.0)

    def redirect(self, job: Job, component: int) -> None:
        """Redirect the files of a component that has moved, and stop transfers that no job needs."""
        self._transfer_files_of(job, component)
        self.ledger.transfers.keep_only_needed(job, self.ledger.commands)

    def _transfer_files_of(self, job: Job, component: int) -> None:
        ledger = self.ledger
        placed = job.placed
        site = placed.spots.sites[component]
        keys = []
        for needed in inputs(job.demand, placed.spots, component, ledger.sites.view):
            if needed.source == site:
                continue
            transfer = ledger.transfers.want(job, needed, site, ledger.now, ledger.commands)
            if transfer.timer is None and not transfer.done:
                self._watch(transfer)
            keys.append(transfer.key)
        placed.needs[component] = tuple(keys)
        job.changes.places[job.id] = None

    def _watch(self, transfer: FileTransfer) -> None:
        parameters = self.ledger.parameters
        patience_s = max(parameters.answer_timeout_s, parameters.transfer_patience * transfer.estimate_s)
        self.ledger.transfers.changed(transfer)
        transfer.timer = self.ledger.timers.set(self.ledger.now + patience_s, Alarm.TRANSFER_OVERDUE, transfer.id)

    def _overdue(self, transfer_id: TransferId) -> None:
        transfer = self.ledger.transfers.by_id[transfer_id]
        transfer.timer = None
        self.ledger.transfers.overdue(transfer, self.ledger.now)
        self.ledger.commands.append(CancelTransfer(transfer=transfer.id))
        self._broke(transfer, "it took far longer than estimated")

    def on_transfer_ended(self, event: TransferEnded) -> None:
        ledger = self.ledger
        transfer = ledger.transfers.by_id.get(event.transfer)
        if transfer is None or transfer.done:
            return
        ledger.current_jobs = jobs = [ledger.jobs[job_id] for job_id in transfer.jobs]
        assert transfer.timer is not None
        transfer.timer.cancel()
        transfer.timer = None
        if not event.ok:
            self._broke(transfer, event.reason or "the transfer broke", event.fault)
            return
        ledger.transfers.arrived(transfer, ledger.now)
        for job in jobs:
            ledger.current_jobs = (job,)
            placed = job.placed
            placed.transfers_open -= 1
            ledger.story.append(FileArrived(job=job.id, file=transfer.key[0], site=ledger.names[transfer.key[2]]))
            if job.state is JobState.STARTING:
                self.running.open_barrier_if_complete(job, placed)

    def _broke(self, transfer: FileTransfer, reason: str, fault: Fault | None = None) -> None:
        ledger = self.ledger
        file, _, target = transfer.key
        jobs = [ledger.jobs[job_id] for job_id in transfer.jobs]
        source, at = ledger.names[transfer.source], ledger.names[target]
        for job in jobs:
            ledger.story.append(TransferBroke(job=job.id, file=file, source=source, target=at, reason=reason))
        more = transfer.tries < ledger.parameters.transfer_tries_max
        if more and ledger.transfers.again(transfer, ledger.now, ledger.commands):
            self._watch(transfer)
            return
        for job in jobs:
            ledger.current_jobs = (job,)
            why = f"file {file} could not be brought to {at}: {reason}"
            if fault is not None and fault.is_own:
                if self.ending.failed_by_itself(job, why):
                    continue
                self.ending.avoidance.rest(job)
            self.ending.back_to_queue(job, why)

    def on_file_changed(self, event: FileChanged) -> None:
        ledger = self.ledger
        holders = tuple(sorted({ledger.index[site] for site in event.replicas if site in ledger.index}))
        files = ledger.sites.view.files
        if event.time_is_over and event.file in ledger.readers:
            return
        if holders:
            files[event.file] = FileAt(event.size_bytes, holders)
        else:
            files.pop(event.file, None)
        ledger.sites.files_changed(event.file)
        if not holders:
            for job_id in tuple(ledger.readers.get(event.file, ())):
                self._file_gone(ledger.jobs[job_id], event)

    def _file_gone(self, job: Job, event: FileChanged) -> None:
        """Handle a vanished file: started jobs continue, since their sites keep what they read; others cannot start
        with it."""
        if job.state not in _NOT_STARTED:
            return
        self.ledger.current_jobs = (job,)
        self.ledger.story.append(InputForgotten(job=job.id, file=event.file, by=event.by_whom))
        if job.state in _HAS_PLACES:
            self.ending.back_to_queue(job, f"file {event.file} was forgotten{event.by_whom}", lower=False)
        else:
            self.ending.ends_without_input(job)
