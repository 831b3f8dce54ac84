"""The store: the daemon's durable data, in one database that it alone uses.

All calls are synchronous and may come from any thread. Writing calls follow one another on one connection; reading
calls have their own connections and never see part of a batch. Every call raises ``StoreError`` when the database
fails; a later call connects anew.
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
        self._last_seq: int | None = None  # of the journal, whose only writer this is

    @classmethod
    def open(cls, url: str | Path) -> Store:
        """Open the store at a path, ``sqlite:///PATH`` or ``postgresql://...``; a new database gets its tables.

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
        """Raise ``StoreError`` if the database is no longer the one that was opened."""
        self._check_open()
        self._database.check()

    @property
    def name(self) -> str:
        """The name of the database for people, without a password."""
        return self._database.name

    def close(self) -> None:
        """Release the database after the calls under way: a connection in use would outlive it. Idempotent; every
        later call raises ``StoreError``."""
        with self._reading:
            self._closed = True
            self._reading.wait_for(lambda: self._readers == 0)
        with self._writing:
            self._drop_writer()
            self._database.release()

    # ------------------------------------------------------------------------------------- the engine's calls

    def recover(self) -> Recovered:
        """Return the state that a restart begins with: the records of the scheduler, and the commands still to be
        performed."""
        self._last_seq = None
        with self._write("recover") as connection:
            recovered = queries.recover(connection)
            self._last_seq = queries.newest_seq(connection)
        return recovered

    def record(self, batch: Batch) -> None:
        """Record the whole batch. When this returns the batch survives any crash; after an error nothing of it is
        stored.

        There is one exception: when the connection breaks during the commit, the result is unknown. The next call
        finds out, and if the batch is stored after all, it fails until ``recover`` has been called.
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
        """Return the jobs in these states with their components and transfers, in a fixed small number of queries."""
        with self._read("read live jobs") as connection:
            return queries.live_record(connection, states)

    def rewrite_records(
        self,
        rows: Iterable[tuple[str, str, bytes | None]],
        damaged: Sequence[tuple[str, str, str]] = (),
        batch: Batch | None = None,
        at: float = 0.0,
    ) -> None:
        """Store these records of the scheduler and delete all others, together with the callers' rows in ``batch``.
        The ``damaged`` records (kind, key, problem) are set aside."""
        with self._write("write the records of the scheduler") as connection:
            records.rewrite(connection, rows, damaged, at)
            if batch is not None:
                writes.record(connection, batch)

    def write_records(self, rows: Iterable[tuple[str, str, bytes | None]]) -> None:
        """Store these records of the scheduler beside the others."""
        with self._write("write records of the scheduler") as connection:
            records.write(connection, rows)

    def records(self) -> list[RecordRow]:
        """Return the records of the scheduler."""
        with self._read("read the records of the scheduler") as connection:
            return records.read(connection)

    def damaged_records(self) -> list[DamagedRow]:
        """Return the records that were set aside."""
        with self._read("read damaged records") as connection:
            return records.damaged_rows(connection)

    def forget_record(self, kind: str, key: str) -> bool:
        """Remove one record of the scheduler, even one that was set aside; return False if there is none."""
        with self._write("remove a record of the scheduler") as connection:
            return records.forget(connection, kind, key) > 0

    def job_sizes(self) -> list[offline.JobSize]:
        """Return all jobs with their shares of the database, the newest first."""
        with self._read("read jobs") as connection:
            return offline.job_sizes(connection)

    def remove_job(self, job: JobId, rows: Iterable[tuple[str, str, bytes | None]], kinds: Collection[str]) -> None:
        """Remove a job in one transaction: its rows, and its records of these kinds. ``rows`` are the changed records
        of others."""
        with self._write("remove a job") as connection:
            offline.remove_job(connection, job)
            records.forget_job(connection, job, kinds)
            records.write(connection, rows)
        self._last_seq = None  # the newest entry may have been the job's

    def exported(self) -> Iterator[dict[str, Any]]:
        """Yield everything but access tokens, row by row as plain values."""
        with self._read("export it") as connection:
            yield from offline.exported(connection)

    def prune_journal(self, below: int) -> bool:
        """Remove entries below this number, at most ``PRUNED_ENTRIES_MAX`` in a call; return True if more may remain.

        Commands still to be performed stay. So do the newest entry, and the first and the last entries about each job
        that has not ended, for its story.
        """
        with self._write("prune the journal") as connection:
            return writes.prune_journal(connection, below)

    def mark_pruned(self, tokens: Iterable[Token]) -> None:
        """Note that the sites of these ended components have forgotten them; the rows stay."""
        with self._write("mark components as pruned") as connection:
            writes.mark_pruned(connection, tokens)

    def state_directory(self) -> StateDirectory | None:
        """Return the state directory that the database belongs to; None for a new database."""
        with self._read("read whose it is") as connection:
            return queries.state_directory(connection)

    def give_to(self, directory: StateDirectory) -> None:
        """Make the database belong to this state directory from now on."""
        with self._write("note whose it is") as connection:
            writes.give_to(connection, directory)

    def last_at(self) -> float:
        """Return the time of the newest entry of the journal; 0 if there is none."""
        with self._read("read the journal") as connection:
            return queries.newest_at(connection)

    # --------------------------------------------------------------------------------------------------- jobs

    def job(self, id: JobId) -> StoredJob | None:  # noqa: A002
        """Return the job with this id."""
        if not queries.is_whole(id):
            return None
        with self._read("read a job") as connection:
            return queries.job(connection, id)

    def request(self, job: JobId) -> Request | None:
        """Return the request of a job; None if its submission is not on record."""
        if not queries.is_whole(job):
            return None
        with self._read("read a request") as connection:
            return queries.requests_of(connection, [job]).get(job)

    def requests_of(self, jobs: Collection[JobId]) -> dict[JobId, Request]:
        """Return the requests of jobs whose submissions are on record. Jobs with the same request share it."""
        with self._read("read requests") as connection:
            return queries.requests_of(connection, jobs)

    def jobs_of(self, owner: str, jobs: Collection[JobId]) -> set[JobId]:
        """Return the jobs among these that belong to the owner."""
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
        """Return the newest jobs: of one owner, in certain states, with ids below ``before``, and of ``which``, as
        far as given. Elements of an array are included only with ``array``."""
        with self._read("read jobs") as connection:
            return queries.jobs(
                connection, owner=owner, states=states, before=before, limit=limit, array=array, which=which
            )

    def job_by_client_token(self, owner: str, client_token: str) -> StoredJob | None:
        """Return the job that the owner submitted with this token."""
        with self._read("read a job") as connection:
            return queries.job_by_client_token(connection, owner, client_token)

    def counts(self, owner: str | None = None) -> dict[str, int]:
        """Count the jobs, of one owner or of all, in each state that occurs."""
        with self._read("count jobs") as connection:
            return queries.counts(connection, owner)

    # ------------------------------------------------------------------------------- components and transfers

    def components(self, job: JobId) -> list[ComponentRow]:
        """Return all starts of all components of a job: by run, then by component, the oldest first."""
        if not queries.is_whole(job):
            return []
        with self._read("read components") as connection:
            return queries.components(connection, job)

    def component(self, token: Token) -> ComponentRow | None:
        """Return the component with this token."""
        with self._read("read a component") as connection:
            return queries.component(connection, token)

    def components_by_token(self, tokens: Collection[Token]) -> list[ComponentRow]:
        """Return the components with these tokens, in any order."""
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
        """Return the ended jobs, elements of arrays included, with a component that ended after a time, at one site
        or anywhere, the last first. Only the last ``ends_max`` such components are examined."""
        with self._read("read jobs") as connection:
            return queries.ended_lately(connection, site=site, owner=owner, from_at=from_at, ends_max=ends_max)

    def held_processors(
        self, site: SiteName, from_at: float, to_at: float, steps_max: int = queries.STEPS_MAX
    ) -> list[tuple[float, int]]:
        """Return the changes in the number of held processors of a site, as (time, more or fewer), in order. What was
        held before counts at ``from_at``. With more than ``steps_max`` changes, each of the equal periods has one."""
        with self._read("read components") as connection:
            return queries.held_processors(connection, site, from_at, to_at, steps_max)

    def ended_components(self, before: float, limit: int, now: float | None = None) -> list[ComponentRow]:
        """Return components that ended before a time and are not marked as pruned, the first to end first."""
        with self._read("read components") as connection:
            return queries.ended_components(connection, before, limit, now)

    def ended_components_count(self) -> int:
        """Count the components that have ended and are not marked as pruned."""
        with self._read("count components") as connection:
            return queries.ended_components_count(connection)

    def transfers(self, job: JobId) -> list[TransferRow]:
        """Return every transfer that was ever recorded for a job, the oldest first."""
        if not queries.is_whole(job):
            return []
        with self._read("read transfers") as connection:
            return queries.transfers(connection, job)

    # -------------------------------------------------------------------------------------------------- files

    def files(
        self, *, after: FileName | None = None, prefix: str = "", limit: int = PAGE_DEFAULT
    ) -> list[CatalogueEntry]:
        """Return files after a name whose names begin with ``prefix``, in the order of their stored names: by their
        UTF-8 bytes, escapes as written."""
        with self._read("read files") as connection:
            return queries.files(connection, after=after, prefix=prefix, limit=limit)

    def all_files(self) -> list[CatalogueEntry]:
        """Return the whole replica catalogue, in the same order."""
        with self._read("read files") as connection:
            return queries.files(connection, after=None, prefix="", limit=None)

    def file(self, name: FileName) -> CatalogueEntry | None:
        """Return the file with this name."""
        with self._read("read a file") as connection:
            return queries.file(connection, name)

    # ------------------------------------------------------------------------------------------------ journal

    def journal(
        self, *, after: int = 0, limit: int = PAGE_DEFAULT, job: JobId | None = None, owner: str | None = None
    ) -> list[JournalRow]:
        """Return entries after a sequence number, in order. ``job`` selects the entries of that job; ``owner`` those
        of the owner's jobs, and without ``job`` also those of no job."""
        if job is not None and not queries.is_whole(job):
            return []
        with self._read("read the journal") as connection:
            return queries.journal(connection, after=after, limit=limit, number=job, owner=owner)

    def story(self, job: JobId, kinds: Collection[str]) -> StoryRows:
        """Return the entries of these types about a job, in order; with more than ``STORY_ENTRIES_MAX`` the first and
        the last."""
        with self._read("read the journal") as connection:
            return queries.story(connection, job, kinds)

    def site_reports(
        self, site: SiteName, from_at: float, to_at: float, steps_max: int = queries.STEPS_MAX
    ) -> list[JournalRow]:
        """Return the site's reports from ``from_at`` to ``to_at``, and the last one before, in order. With more than
        ``steps_max`` reports, return the last of each of the equal periods."""
        with self._read("read a site's reports") as connection:
            return queries.site_reports(connection, site, from_at, to_at, steps_max)

    # ------------------------------------------------------------------------------------------------- tokens

    def add_token(self, row: TokenRow) -> None:
        """Add a new token; neither its id nor its hash may exist already."""
        with self._write("add a token") as connection:
            writes.add_token(connection, row)

    def tokens(self, *, revoked_since: float | None = None) -> list[TokenRow]:
        """Return all tokens, the oldest first; ``revoked_since`` leaves out those that were revoked before that
        time."""
        with self._read("read tokens") as connection:
            return queries.tokens(connection, revoked_since)

    def token_by_hash(self, secret_hash: str) -> TokenRow | None:
        """Return the token whose secret has this hash, revoked or not."""
        with self._read("read a token") as connection:
            return queries.token_by_hash(connection, secret_hash)

    def revoke_token(self, id: str, at: float) -> bool:  # noqa: A002
        """Mark the token as revoked, once; return False if there is no such token."""
        with self._write("revoke a token") as connection:
            return writes.revoke_token(connection, id, at)

    def touch_token(self, id: str, at: float) -> None:  # noqa: A002
        """Note the time of the token's last use. This is a write like any other, so callers must not do it at every
        call."""
        with self._write("note a token's use") as connection:
            writes.touch_token(connection, id, at)

    # -------------------------------------------------------------------------------------------- connections

    @contextlib.contextmanager
    def _read(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that sees one moment."""
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
        """Open the one writing transaction, and commit it at its end. After an error the connection is not used
        again."""
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
        """Check on a new connection that nobody has written meanwhile, and that no commit succeeded that seemed to
        fail."""
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
