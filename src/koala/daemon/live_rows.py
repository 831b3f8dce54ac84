"""The rows of all jobs that have not ended, of their components and transfers, as they are on record.

A draft gathers what a batch of events changes. It takes effect once the batch is on record, so that callers never see
what a failure could undo. ``koala.daemon.engine.projection`` works out what the rows say.
"""

from __future__ import annotations

from collections.abc import Iterable

from koala.core.lifecycle import ENDED
from koala.model.messages import Token, TransferId
from koala.model.request import JobId
from koala.store.rows import ComponentRow, StoredJob, TransferRow

ENDED_STATES = frozenset(str(state) for state in ENDED)


class LiveRows:
    """Jobs that have not ended with all their components, components that outlive their job, and transfers."""

    def __init__(
        self,
        jobs: Iterable[StoredJob] = (),
        components: Iterable[ComponentRow] = (),
        transfers: Iterable[TransferRow] = (),
    ) -> None:
        self.jobs: dict[JobId, StoredJob] = {row.id: row for row in jobs}
        self.components: dict[Token, ComponentRow] = {}
        self.transfers: dict[TransferId, TransferRow] = {row.id: row for row in transfers}
        self._tokens: dict[JobId, list[Token]] = {}
        for row in components:
            self._put(row)

    def components_of(self, job: JobId) -> list[ComponentRow]:
        """All starts of the job's components that are kept, the oldest first."""
        return [self.components[token] for token in self._tokens.get(job, ())]

    def held_at(self, site: str) -> list[ComponentRow]:
        """The components at a site whose end is not on record."""
        return [row for row in self.components.values() if row.site == site and row.ended_at is None]

    def take(self, draft: Draft) -> None:
        """The draft is on record."""
        for component in draft.components.values():
            self._put(component)
        for transfer in draft.transfers.values():
            self.transfers[transfer.id] = transfer
        for over in draft.transfers_over:
            self.transfers.pop(over, None)
        for job in draft.jobs.values():
            if job.state in ENDED_STATES:
                self.jobs.pop(job.id, None)
                self._clear(job.id)
            else:
                self.jobs[job.id] = job
        for component in draft.components.values():
            if component.ended_at is not None and component.job not in self.jobs:
                self._clear(component.job)

    def _put(self, row: ComponentRow) -> None:
        if row.token not in self.components:
            self._tokens.setdefault(row.job, []).append(row.token)
        self.components[row.token] = row

    def _clear(self, job: JobId) -> None:
        """Of a job that is over only what a site still holds is kept."""
        kept = []
        for token in self._tokens.pop(job, ()):
            if self.components[token].ended_at is None:
                kept.append(token)
            else:
                del self.components[token]
        if kept:
            self._tokens[job] = kept


class Draft:
    """The rows that one batch changes, in front of those on record."""

    def __init__(self, rows: LiveRows) -> None:
        self._rows = rows
        self.jobs: dict[JobId, StoredJob] = {}
        self.components: dict[Token, ComponentRow] = {}
        self.transfers: dict[TransferId, TransferRow] = {}
        self.transfers_over: set[TransferId] = set()

    def job(self, job: JobId) -> StoredJob | None:
        """The newest row of a job."""
        return self.jobs.get(job) or self._rows.jobs.get(job)

    def before(self) -> tuple[StoredJob | ComponentRow | TransferRow, ...]:
        """The rows on record that the batch changes."""
        rows = self._rows
        jobs = (rows.jobs.get(key) for key in self.jobs)
        components = (rows.components.get(key) for key in self.components)
        transfers = (rows.transfers.get(key) for key in self.transfers)
        return tuple([row for each in (jobs, components, transfers) for row in each if row is not None])

    def component(self, token: Token) -> ComponentRow | None:
        """The newest row of a component."""
        return self.components.get(token) or self._rows.components.get(token)

    def transfer(self, transfer: TransferId) -> TransferRow | None:
        """The newest row of a transfer."""
        return self.transfers.get(transfer) or self._rows.transfers.get(transfer)

    def components_of(self, job: JobId) -> list[ComponentRow]:
        """The newest rows of a job's components."""
        found = {row.token: row for row in self._rows.components_of(job)}
        found.update((row.token, row) for row in self.components.values() if row.job == job)
        return list(found.values())
