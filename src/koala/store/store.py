"""The store: everything that the daemon must not forget, in one database that it alone uses.

All calls are synchronous and may come from any thread. Those that write go one after the other through one
connection; those that read have their own and see no half of a batch. Every call raises ``StoreError`` when the
database does not do it; a later call connects anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, exc

from koala.files import CatalogueEntry
from koala.model.messages import Token
from koala.model.request import FileName, JobId, Request, SiteName
from koala.store import offline, queries, records, writes
from koala.store.creation import create_tables
from koala.store.database import Database, database_of
from koala.store.errors import StoreError, explained
from koala.store.rows import (
    ALL_JOBS,
    Batch,
    ChosenJobs,
    ComponentRow,
    DamagedRow,
    JournalRow,
    LiveRecord,
    RecentlyEnded,
    RecordRow,
    Recovered,
    StateDirectory,
    StoredJob,
    StoryRows,
    TokenRow,
    TransferRow,
)

PAGE_DEFAULT = 100


class Store:
    """One daemon's database, from ``open`` to ``close``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing = threading.Lock()
        self._writer: Connection | None = None
        self._reading = threading.Condition()
        self._readers = 0
        self._closed = False
        self._last_seq: int | None = None  # of the journal, as its only writer knows it

    @classmethod
    def open(cls, url: str | Path) -> Store:
        """The store at a path, ``sqlite:///PATH`` or ``postgresql://...``; a new database gets its tables.

        Refuses a database that another daemon uses, and one with the tables of another version of Koala.
        """
        store = cls(database_of(url))
        try:
            with store._errors("open it"):
                store._database.acquire()
            with store._write("create its tables") as connection:
                create_tables(connection, store.name)
        except BaseException:
            store.close()
            raise
        return store

    def check(self) -> None:
        """Raise ``StoreError`` where the database is not the one any more that was opened."""
        self._check_open()
        self._database.check()

    @property
    def name(self) -> str:
        """The database in words for people, without a password."""
        return self._database.name

    def close(self) -> None:
        """Let go of the database when the calls under way are done: a connection in use would outlive it. Idempotent;
        every later call raises ``StoreError``."""
        with self._reading:
            self._closed = True
            self._reading.wait_for(lambda: self._readers == 0)
        with self._writing:
            self._drop_writer()
            self._database.release()

    # ------------------------------------------------------------------------------------- the engine's calls

    def recover(self) -> Recovered:
        """What a restart begins with: the records of the scheduler, and the commands still to be performed."""
        self._last_seq = None
        with self._write("recover") as connection:
            recovered = queries.recover(connection)
            self._last_seq = queries.newest_seq(connection)
        return recovered

    def record(self, batch: Batch) -> None:
        """Keep the whole batch; when this returns it survives any crash, and after an error nothing of it is there.

        One exception: when the connection breaks during the commit itself nobody knows. The next call then finds
        out, and refuses until ``recover`` was called when the batch is there after all.
        """
        last = self._last_seq
        for entry in batch.entries:
            if last is not None and entry.seq <= last:
                raise StoreError(self.name, f"cannot record entry {entry.seq} after {last}; recover first")
            last = entry.seq
        with self._write("record a batch") as connection:
            writes.record(connection, batch)
        if self._last_seq is not None:
            self._last_seq = last

    def live_record(self, states: Collection[str]) -> LiveRecord:
        """The jobs in these states with their components and transfers, in a few questions however many there are."""
        with self._read("read live jobs") as connection:
            return queries.live_record(connection, states)

    def rewrite_records(
        self,
        rows: Iterable[tuple[str, str, bytes | None]],
        damaged: Sequence[tuple[str, str, str]] = (),
        batch: Batch | None = None,
        at: float = 0.0,
    ) -> None:
        """Keep these records of the scheduler and no others, with what ``batch`` says of callers' rows. The
        ``damaged`` records (kind, key, problem) are set aside."""
        with self._write("write the records of the scheduler") as connection:
            records.rewrite(connection, rows, damaged, at)
            if batch is not None:
                writes.record(connection, batch)

    def write_records(self, rows: Iterable[tuple[str, str, bytes | None]]) -> None:
        """Keep these records of the scheduler beside the others."""
        with self._write("write records of the scheduler") as connection:
            records.write(connection, rows)

    def records(self) -> list[RecordRow]:
        """The records of the scheduler."""
        with self._read("read the records of the scheduler") as connection:
            return records.read(connection)

    def damaged_records(self) -> list[DamagedRow]:
        """The records that were set aside."""
        with self._read("read damaged records") as connection:
            return records.damaged_rows(connection)

    def forget_record(self, kind: str, key: str) -> bool:
        """Remove one record of the scheduler, also one that was set aside; False where there is none."""
        with self._write("remove a record of the scheduler") as connection:
            return records.forget(connection, kind, key) > 0

    def job_sizes(self) -> list[offline.JobSize]:
        """All jobs with how much of the database is theirs, the newest first."""
        with self._read("read jobs") as connection:
            return offline.job_sizes(connection)

    def remove_job(self, job: JobId, rows: Iterable[tuple[str, str, bytes | None]], kinds: Collection[str]) -> None:
        """All that is on record of a job goes, in one transaction: its rows, and its records of these kinds. ``rows``
        are records that others have without it."""
        with self._write("remove a job") as connection:
            offline.remove_job(connection, job)
            records.forget_job(connection, job, kinds)
            records.write(connection, rows)
        self._last_seq = None  # the newest entry may have been the job's

    def exported(self) -> Iterator[dict[str, Any]]:
        """Everything but access tokens, row by row as plain values."""
        with self._read("export it") as connection:
            yield from offline.exported(connection)

    def prune_journal(self, below: int) -> bool:
        """Entries below that one go, at most ``PRUNED_ENTRIES_MAX`` a call.

        Commands still to be performed stay, and so do the first and the last entries about a job that has not ended,
        for its story, and the newest entry. Says whether another call would find more.
        """
        with self._write("prune the journal") as connection:
            return writes.prune_journal(connection, below)

    def mark_pruned(self, tokens: Iterable[Token]) -> None:
        """Their sites have forgotten these ended components; their rows stay."""
        with self._write("mark components as pruned") as connection:
            writes.mark_pruned(connection, tokens)

    def state_directory(self) -> StateDirectory | None:
        """The state directory that the database belongs to; None for one that is new."""
        with self._read("read whose it is") as connection:
            return queries.state_directory(connection)

    def give_to(self, directory: StateDirectory) -> None:
        """From now on the database belongs to this state directory."""
        with self._write("note whose it is") as connection:
            writes.give_to(connection, directory)

    def last_at(self) -> float:
        """The time of the newest entry of the journal; 0 where there is none."""
        with self._read("read the journal") as connection:
            return queries.newest_at(connection)

    # --------------------------------------------------------------------------------------------------- jobs

    def job(self, id: JobId) -> StoredJob | None:  # noqa: A002
        """The job with this id."""
        if not queries.is_whole(id):
            return None
        with self._read("read a job") as connection:
            return queries.job(connection, id)

    def request(self, job: JobId) -> Request | None:
        """What the job asks for; None when its submission is not on record."""
        if not queries.is_whole(job):
            return None
        with self._read("read a request") as connection:
            return queries.requests_of(connection, [job]).get(job)

    def requests_of(self, jobs: Collection[JobId]) -> dict[JobId, Request]:
        """What jobs ask for, as far as their submissions are on record. Jobs with the same request share it."""
        with self._read("read requests") as connection:
            return queries.requests_of(connection, jobs)

    def jobs_of(self, owner: str, jobs: Collection[JobId]) -> set[JobId]:
        """Which of these jobs are the owner's."""
        with self._read("read jobs") as connection:
            return queries.jobs_of(connection, owner, jobs)

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Collection[str] = (),
        before: JobId | None = None,
        limit: int = PAGE_DEFAULT,
        array: JobId | None = None,
        which: ChosenJobs = ALL_JOBS,
    ) -> list[StoredJob]:
        """The newest first: of one owner, in one of some states, with ids below one, and of ``which``; whatever is
        given. Elements of an array are told only where that is asked for."""
        with self._read("read jobs") as connection:
            return queries.jobs(
                connection, owner=owner, states=states, before=before, limit=limit, array=array, which=which
            )

    def job_by_client_token(self, owner: str, client_token: str) -> StoredJob | None:
        """The job that the owner submitted with this token."""
        with self._read("read a job") as connection:
            return queries.job_by_client_token(connection, owner, client_token)

    def counts(self, owner: str | None = None) -> dict[str, int]:
        """How many jobs, of one owner or of all, are in each state that any is in."""
        with self._read("count jobs") as connection:
            return queries.counts(connection, owner)

    # ------------------------------------------------------------------------------- components and transfers

    def components(self, job: JobId) -> list[ComponentRow]:
        """All starts of all components of a job: by run, then by component, the oldest first."""
        if not queries.is_whole(job):
            return []
        with self._read("read components") as connection:
            return queries.components(connection, job)

    def component(self, token: Token) -> ComponentRow | None:
        """The component with this token."""
        with self._read("read a component") as connection:
            return queries.component(connection, token)

    def components_by_token(self, tokens: Collection[Token]) -> list[ComponentRow]:
        """The components with these tokens, in any order."""
        with self._read("read components") as connection:
            return queries.components_by_token(connection, tokens)

    def ended_lately(
        self,
        from_at: float,
        *,
        site: SiteName | None = None,
        owner: str | None = None,
        ends_max: int = queries.ENDS_LOOKED_AT_MAX,
    ) -> list[RecentlyEnded]:
        """The jobs, and elements of arrays, that are over and of which a component ended after a time, at one site or
        anywhere, the last first. Of all such components the last ``ends_max`` are looked at."""
        with self._read("read jobs") as connection:
            return queries.ended_lately(connection, site=site, owner=owner, from_at=from_at, ends_max=ends_max)

    def held_processors(
        self, site: SiteName, from_at: float, to_at: float, steps_max: int = queries.STEPS_MAX
    ) -> list[tuple[float, int]]:
        """How many more or fewer processors of a site were held from when on, in order; what was held before counts
        at ``from_at``. Where there are more steps, those of equal stretches of time are one."""
        with self._read("read components") as connection:
            return queries.held_processors(connection, site, from_at, to_at, steps_max)

    def ended_components(self, before: float, limit: int, now: float | None = None) -> list[ComponentRow]:
        """Those that ended before a time and are not marked as pruned, the first to end first."""
        with self._read("read components") as connection:
            return queries.ended_components(connection, before, limit, now)

    def ended_components_count(self) -> int:
        """How many components have ended and are not marked as pruned."""
        with self._read("count components") as connection:
            return queries.ended_components_count(connection)

    def transfers(self, job: JobId) -> list[TransferRow]:
        """Every transfer that was ever recorded for a job, the oldest first."""
        if not queries.is_whole(job):
            return []
        with self._read("read transfers") as connection:
            return queries.transfers(connection, job)

    # -------------------------------------------------------------------------------------------------- files

    def files(
        self, *, after: FileName | None = None, prefix: str = "", limit: int = PAGE_DEFAULT
    ) -> list[CatalogueEntry]:
        """Files after a name whose names begin with ``prefix``, in the order of their names as they are kept: by
        their UTF-8 bytes, escapes as written."""
        with self._read("read files") as connection:
            return queries.files(connection, after=after, prefix=prefix, limit=limit)

    def all_files(self) -> list[CatalogueEntry]:
        """The whole replica catalogue, in the same order."""
        with self._read("read files") as connection:
            return queries.files(connection, after=None, prefix="", limit=None)

    def file(self, name: FileName) -> CatalogueEntry | None:
        """The file with this name."""
        with self._read("read a file") as connection:
            return queries.file(connection, name)

    # ------------------------------------------------------------------------------------------------ journal

    def journal(
        self, *, after: int = 0, limit: int = PAGE_DEFAULT, job: JobId | None = None, owner: str | None = None
    ) -> list[JournalRow]:
        """Entries after a sequence number, in order. With ``job`` only that job's; with ``owner`` only those of the
        owner's jobs, and without ``job`` also those of no job."""
        if job is not None and not queries.is_whole(job):
            return []
        with self._read("read the journal") as connection:
            return queries.journal(connection, after=after, limit=limit, number=job, owner=owner)

    def story(self, job: JobId, kinds: Collection[str]) -> StoryRows:
        """The entries of these types about a job, in order; of more than ``STORY_ENTRIES_MAX`` the first and the
        last."""
        with self._read("read the journal") as connection:
            return queries.story(connection, job, kinds)

    def site_reports(
        self, site: SiteName, from_at: float, to_at: float, steps_max: int = queries.STEPS_MAX
    ) -> list[JournalRow]:
        """The site's reports from ``from_at`` to ``to_at``, and the last one before, all in order; where there are
        more, the last of each of equal stretches of time."""
        with self._read("read a site's reports") as connection:
            return queries.site_reports(connection, site, from_at, to_at, steps_max)

    # ------------------------------------------------------------------------------------------------- tokens

    def add_token(self, row: TokenRow) -> None:
        """Keep a new token; neither its id nor its hash may be known already."""
        with self._write("add a token") as connection:
            writes.add_token(connection, row)

    def tokens(self, *, revoked_since: float | None = None) -> list[TokenRow]:
        """All tokens, the oldest first: the revoked ones too, or of them only those revoked at a time or later."""
        with self._read("read tokens") as connection:
            return queries.tokens(connection, revoked_since)

    def token_by_hash(self, secret_hash: str) -> TokenRow | None:
        """The token whose secret has this hash, revoked or not."""
        with self._read("read a token") as connection:
            return queries.token_by_hash(connection, secret_hash)

    def revoke_token(self, id: str, at: float) -> bool:  # noqa: A002
        """Mark the token as revoked, once; False when there is no such token."""
        with self._write("revoke a token") as connection:
            return writes.revoke_token(connection, id, at)

    def touch_token(self, id: str, at: float) -> None:  # noqa: A002
        """Note when the token was used last. It is a write like any other, so not for every single call."""
        with self._write("note a token's use") as connection:
            writes.touch_token(connection, id, at)

    # -------------------------------------------------------------------------------------------- connections

    @contextlib.contextmanager
    def _read(self, doing: str) -> Iterator[Connection]:
        """A transaction of its own that sees one moment."""
        with self._errors(doing):
            with self._reading:
                self._check_open()
                self._readers += 1
            try:
                with self._database.engine.connect() as connection:
                    yield connection
            finally:
                with self._reading:
                    self._readers -= 1
                    self._reading.notify_all()

    @contextlib.contextmanager
    def _write(self, doing: str) -> Iterator[Connection]:
        """The one writing transaction, committed at its end. After an error the connection is not used again."""
        with self._errors(doing), self._writing:
            self._check_open()
            try:
                if self._writer is None:
                    self._writer = self._database.connect_writer()
                    self._check_position(self._writer)
                with self._writer.begin():
                    yield self._writer
                    self._database.check()
            except BaseException:
                self._drop_writer()
                raise

    def _check_position(self, connection: Connection) -> None:
        """On a new connection: has anybody written since the last one, or was a commit done that seemed to fail?"""
        if self._last_seq is None:
            return
        with connection.begin():
            newest = queries.newest_seq(connection)
        if newest != self._last_seq:
            raise StoreError(self.name, f"its journal ends at {newest} and not at {self._last_seq}; recover first")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(self.name, "the store is closed; open it again")

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(exc.SQLAlchemyError):
                writer.invalidate()
            with contextlib.suppress(exc.SQLAlchemyError):
                writer.close()

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except (exc.SQLAlchemyError, OSError, OverflowError) as error:
            raise explained(self.name, doing, error) from error
        except (msgspec.MsgspecError, ValueError) as error:
            message = f"cannot {doing}: a row is not as Koala wrote it ({error}); restore the database from a backup"
            raise StoreError(self.name, message) from error
