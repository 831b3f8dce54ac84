"""The rows on record of all jobs that have not ended, and of their components and transfers.

A draft gathers the changes of a batch of events. It takes effect once the batch is on record, so that callers never
see anything that a failure could undo. ``koala.daemon.engine.projection`` derives the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from koala.core.life.states import ENDED, JobState
from koala.model.messages import Token, TransferId
from koala.model.request import JobId
from koala.store.rows import ComponentRow, StoredJob, TransferRow

ENDED_STATES = frozenset(str(state) for state in ENDED)


def _stand_as(array: StoredJob) -> str:
    """Return the state in which an array's future elements are counted: they are held back where their array is."""
    return str(JobState.WAITING) if array.state == JobState.UNFOLDING else array.state


class LiveRows:
    """Jobs that have not ended with all their components, components that outlive their job, and transfers."""

    def __init__(
        self,
        jobs: Iterable[StoredJob] = (),
        components: Iterable[ComponentRow] = (),
        transfers: Iterable[TransferRow] = (),
    ) -> None:
        self.jobs: dict[JobId, StoredJob] = {}
        # By owner (None for all) and state, in the order in which jobs entered the state.
        self._in_state: dict[tuple[str | None, str], dict[JobId, None]] = {}
        self._arrays: set[JobId] = set()  # the live jobs that are arrays
        self._made: Counter[JobId] = Counter()  # by array: its elements among the live jobs
        self._ended: Counter[tuple[str | None, str]] = Counter()  # by owner and state, for counted owners
        self._counted: set[str | None] = set()  # the owners whose ended jobs are counted
        for job in jobs:
            self._put_job(job)
        self.components: dict[Token, ComponentRow] = {}
        self.transfers: dict[TransferId, TransferRow] = {row.id: row for row in transfers}
        self._tokens: dict[JobId, list[Token]] = {}
        for row in components:
            self._put(row)

    def components_of(self, job: JobId) -> list[ComponentRow]:
        """Return all starts of the job's components that are kept, the oldest first."""
        return [self.components[token] for token in self._tokens.get(job, ())]

    def in_state(self, *states: str, owner: str | None = None) -> Iterator[StoredJob]:
        """Yield the jobs in these states, of one owner or of all, in the order in which they entered each."""
        for state in states:
            for job in self._in_state.get((owner, state), ()):
                yield self.jobs[job]

    def owner_of(self, job: JobId) -> str:
        """Return the owner of a job; empty for a job that is not live."""
        row = self.jobs.get(job)
        return "" if row is None else row.owner

    def counts_ended(self, owner: str | None) -> bool:
        """Return True if the owner's ended jobs are counted."""
        return owner in self._counted

    def count_ended(self, owner: str | None, ended: Mapping[str, int]) -> None:
        """Set how many jobs have ended so far, and count on from there. None stands for all owners."""
        self._counted.add(owner)
        for state in ENDED_STATES:
            self._ended[owner, state] = ended.get(state, 0)

    def counts(self, owner: str | None) -> dict[str, int]:
        """Return how many jobs are in each state that occurs, an array by its elements. ``count_ended`` must come
        first."""
        found = Counter({str(state): len(self._in_state.get((owner, state), ())) for state in JobState})
        for row in (self.jobs[each] for each in self._arrays):
            if owner in (None, row.owner):
                found[row.state] -= 1
                found[_stand_as(row)] += self._not_made(row)
        found.update({state: self._ended[owner, state] for state in ENDED_STATES})
        return {state: count for state, count in found.items() if count}

    def _not_made(self, array: StoredJob) -> int:
        """Return how many elements of an array are still to be made."""
        assert array.elements is not None, "an array has elements"
        return max(0, array.elements.waiting + array.elements.running - self._made[array.id])

    def held_at(self, site: str) -> list[ComponentRow]:
        """Return the components at a site whose end is not on record."""
        return [row for row in self.components.values() if row.site == site and row.ended_at is None]

    def take(self, draft: Draft) -> None:
        """Apply a draft that is on record."""
        for component in draft.components.values():
            self._put(component)
        for transfer in draft.transfers.values():
            self.transfers[transfer.id] = transfer
        for over in draft.transfers_over:
            self.transfers.pop(over, None)
        for job in draft.jobs.values():
            if job.state in ENDED_STATES:
                self._drop_job(job.id)
                self._clear(job.id)
                for owner in (None, job.owner):
                    if owner in self._counted and job.elements is None:
                        self._ended[owner, job.state] += 1
            else:
                self._put_job(job)
        for component in draft.components.values():
            if component.ended_at is not None and component.job not in self.jobs:
                self._clear(component.job)

    def _put_job(self, job: StoredJob) -> None:
        before = self.jobs.get(job.id)
        self.jobs[job.id] = job
        if job.elements is not None:
            self._arrays.add(job.id)
        if before is None and job.array is not None:
            self._made[job.array] += 1
        if before is None or before.state != job.state:
            if before is not None:
                self._leave_state(before)
            for owner in (None, job.owner):
                self._in_state.setdefault((owner, job.state), {})[job.id] = None

    def _drop_job(self, job: JobId) -> None:
        before = self.jobs.pop(job, None)
        self._arrays.discard(job)
        if before is not None:
            self._leave_state(before)
            if before.array is not None:
                self._made[before.array] -= 1
                if not self._made[before.array]:
                    del self._made[before.array]

    def _leave_state(self, before: StoredJob) -> None:
        for owner in (None, before.owner):
            jobs = self._in_state[owner, before.state]
            del jobs[before.id]
            if not jobs:
                del self._in_state[owner, before.state]

    def _put(self, row: ComponentRow) -> None:
        if row.token not in self.components:
            self._tokens.setdefault(row.job, []).append(row.token)
        self.components[row.token] = row

    def _clear(self, job: JobId) -> None:
        """Drop the components of a job that is over, except those that a site still holds."""
        kept = []
        for token in self._tokens.pop(job, ()):
            if self.components[token].ended_at is None:
                kept.append(token)
            else:
                del self.components[token]
        if kept:
            self._tokens[job] = kept


class Draft:
    """The rows that one batch changes, on top of those on record."""

    def __init__(self, rows: LiveRows) -> None:
        self._rows = rows
        self.jobs: dict[JobId, StoredJob] = {}
        self.components: dict[Token, ComponentRow] = {}
        self.transfers: dict[TransferId, TransferRow] = {}
        self.transfers_over: set[TransferId] = set()

    def job(self, job: JobId) -> StoredJob | None:
        """Return the newest row of a job."""
        return self.jobs.get(job) or self._rows.jobs.get(job)

    def before(self) -> tuple[StoredJob | ComponentRow | TransferRow, ...]:
        """Return the rows on record that the batch changes."""
        rows = self._rows
        jobs = (rows.jobs.get(key) for key in self.jobs)
        components = (rows.components.get(key) for key in self.components)
        transfers = (rows.transfers.get(key) for key in self.transfers)
        return tuple([row for each in (jobs, components, transfers) for row in each if row is not None])

    def component(self, token: Token) -> ComponentRow | None:
        """Return the newest row of a component."""
        return self.components.get(token) or self._rows.components.get(token)

    def transfer(self, transfer: TransferId) -> TransferRow | None:
        """Return the newest row of a transfer."""
        return self.transfers.get(transfer) or self._rows.transfers.get(transfer)

    def components_of(self, job: JobId) -> list[ComponentRow]:
        """Return the newest rows of a job's components."""
        found = {row.token: row for row in self._rows.components_of(job)}
        found.update((row.token, row) for row in self.components.values() if row.job == job)
        return list(found.values())
