"""The calls of the daemon's users: one object behind both the API and the dashboard.

Each call names its caller. Rights are checked here and nowhere else, so that all ways in are equally strict: without
``operate`` a caller sees and cancels only its own jobs, and others' jobs do not exist for it. Every call raises a
``ClientError`` if it is not carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Literal, cast

import msgspec

from koala.core.holding import KeptBack, never_to_come, never_to_come_in, would_keep_back
from koala.core.life.states import JobState
from koala.daemon.engine.loop import Engine
from koala.daemon.offload import offload, query
from koala.daemon.service.answers import (
    as_of_now,
    asked_in_words,
    bare_explanation,
    explanation,
    file_info,
    job_summary,
    last_checkpoint,
    places_in_line,
    standing,
    task_infos,
    usage_info,
    visible_to,
    without_start,
)
from koala.daemon.service.cursors import check_after, check_limit, read_cursor, read_number_cursor, write_cursor
from koala.daemon.service.data.chosen import FileChoice
from koala.daemon.service.data.contents import ContentService, job_files
from koala.daemon.service.data.downloads import DownloadService
from koala.daemon.service.data.expiry import OutputExpiry
from koala.daemon.service.data.files import FileService, still_wanted
from koala.daemon.service.data.outputs import check_range, choose, read_output
from koala.daemon.service.job_changes import JobChanges
from koala.daemon.service.job_records import JobRecords
from koala.daemon.service.journal import JournalReader, RenderedEntry, one_by_one, read_journal
from koala.daemon.service.principal import Principal
from koala.daemon.service.sites.grid import GridService
from koala.daemon.service.sites.metrics import Metrics
from koala.daemon.service.sites.overview import CallerView, gather_metrics, operator_warnings
from koala.daemon.service.submissions import (
    SubmissionReader,
    about_job,
    account_warning,
    check_client_token,
    check_dependencies,
    check_rights,
    ended_before,
    guest_notice,
    try_out,
    with_element_numbers,
)
from koala.daemon.upkeep.storage_watch import StorageWatch
from koala.daemon.workers.pool import WorkerPool, Workers
from koala.descriptions import write_job_yaml
from koala.model.api import (
    FORGOTTEN_AT_ONCE_MAX,
    WAIT_S_MAX,
    ComponentRun,
    ContentState,
    DryRun,
    DryRunGraph,
    DryRunGraphJob,
    Explanation,
    FileInfo,
    Forgotten,
    JobDetail,
    JobSummary,
    JournalEntry,
    MissingContents,
    Output,
    OutputInfo,
    Page,
    ReadFile,
    Scope,
    Submitted,
    SubmittedGraph,
    SubmittedGraphJob,
)
from koala.model.api.questions import Forgetting, Registration, Replication, SpawnWish, Submission
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from koala.model.messages import EndedJob
from koala.model.request import GraphJob, InvalidRequestError, Request, numbered_from
from koala.model.request_size import request_characters
from koala.model.task_graph import SpawnedTasks
from koala.policies.errors import suggest
from koala.store import ALL_JOBS, ChosenJobs, StoredJob
from koala.words.standing import would_be_kept_back

# A larger job is written as a text by a worker process instead of a thread.
SMALL_REQUEST_CHARACTERS_MAX = 16_384
# At most this many jobs that wait for files are listed.
WAITING_TOLD_MAX = 1_000

_STATES_IN_ORDER = [str(state) for state in JobState]
_STATES = frozenset(_STATES_IN_ORDER)


class Service:
    """The daemon as its callers see it. ``open`` it after the engine, and ``close`` it first. With ``storage`` no job
    is accepted while there is no room for it."""

    def __init__(
        self, engine: Engine, storage: StorageWatch | None = None, *, workers: Workers | None = None
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._catalogue = FileService(engine)
        self._expiry = OutputExpiry(engine, self._catalogue)
        self._contents = ContentService(engine)
        self._workers: Workers = WorkerPool() if workers is None else workers
        self._submissions = SubmissionReader(self._workers)
        self._journal = JournalReader(engine)
        self._records = JobRecords(engine)
        self._choice = FileChoice(engine, self._records)
        self.downloads = DownloadService(engine, self._records)
        self.changes = JobChanges(engine, self._records)
        self.grid = GridService(engine)

    async def open(self) -> None:
        """Clear up what a daemon that was killed during a call has left behind."""
        await self._catalogue.open()
        self._expiry.start()
        self._contents.open()
        if self._storage is not None:
            self._storage.start()

    async def stop(self) -> None:
        """Begin no more changes of files, and give up slow ones; everything else is still answered."""
        await self._expiry.stop()
        await self._catalogue.stop()

    async def close(self) -> None:
        """Stop, and then close everything. Idempotent."""
        await self._expiry.stop()
        await self._catalogue.close()
        await self._contents.close()
        if self._storage is not None:
            await self._storage.stop()
        self._submissions.close()
        await self._workers.close()

    # ------------------------------------------------------------------------------------------- jobs

    async def submit(self, who: Principal, wish: Submission) -> Submitted:
        """Put a job on record; when this returns it is durable. Needs ``submit``."""
        who.need(Scope.SUBMIT)
        check_client_token(wish.client_token)
        shortage = "" if self._storage is None else self._storage.shortage()
        if shortage:
            raise UnavailableError(shortage)
        request = await self._request(who, wish)
        await self._check(who, request)
        await self._contents.refer(who, request)
        ended = await ended_before(who, request, self._engine)
        vain = never_to_come(self._engine.scheduler.ledger, request, ended)
        row, new = await self._engine.submit(
            request, owner=who.name, client_token=wish.client_token, guest=who.guest, ended=ended
        )
        if not new and await self._records.request_of(row.id) != request:
            raise ConflictError(
                f"client_token: it was used for job {row.id}, which is a different one; use a new token for this job"
            )
        notes = await self._submissions.notes(wish, request, self._engine.grid)
        return Submitted(
            job=self._records.summary(row),
            new=new,
            notes=notes,
            warning=vain if new else "",
            never_fits=self._engine.scheduler.never_fits(row.id),
        )

    async def submit_graph(self, who: Principal, wish: Submission) -> SubmittedGraph:
        """Put several jobs that wait for each other on record, all or none; when this returns they are durable. Needs
        ``submit``."""
        who.need(Scope.SUBMIT)
        check_client_token(wish.client_token)
        shortage = "" if self._storage is None else self._storage.shortage()
        if shortage:
            raise UnavailableError(shortage)
        graph = await self._graph(who, wish)
        await self._contents.refer(who, graph[0].request)  # the files travel with every job
        ended = await self._ended_before(who, wish, graph)
        vain = never_to_come_in(self._engine.scheduler.ledger, graph, ended)
        rows, new = await self._engine.submit_together(
            graph, owner=who.name, client_token=wish.client_token, guest=who.guest, ended=ended
        )
        if not new and not await self._is_of(rows, graph):
            raise ConflictError(
                "client_token: it was used for another submission; use a new token for this graph of jobs"
            )
        jobs = [
            SubmittedGraphJob(
                name=each.name,
                job=self._records.summary(row),
                notes=await self._submissions.notes_of(each.request, self._engine.grid),
                warning=warning if new else "",
                never_fits=self._engine.scheduler.never_fits(row.id),
            )
            for each, row, warning in zip(graph, rows, vain, strict=True)
        ]
        return SubmittedGraph(jobs=jobs, new=new)

    async def _is_of(self, rows: Sequence[StoredJob], graph: Sequence[GraphJob]) -> bool:
        """Return True if these jobs on record are the graph's."""
        if len(rows) != len(graph):
            return False
        try:
            for row, request in zip(rows, numbered_from(rows[0].id, graph), strict=True):
                if await self._records.request_of(row.id) != request:
                    return False
        except InvalidRequestError:
            return False  # with these numbers it would have been refused
        return True

    async def dry_run_graph(self, who: Principal, wish: Submission) -> DryRunGraph:
        """Return where each job of a graph would go now, if nothing kept it back. Needs ``submit``; changes
        nothing."""
        who.need(Scope.SUBMIT)
        graph = await self._graph(who, wish)
        await self._engine.freshen()
        jobs = []
        over = await self._ended_before(who, wish, graph)
        vain = never_to_come_in(self._engine.scheduler.ledger, graph, over)
        for each, ended, in_vain in zip(graph, over, vain, strict=True):
            after: dict[str, dict[str, None]] = {}
            for other in each.within:
                after.setdefault(str(other.condition), {})[graph[other.job].name] = None
            notes = await self._submissions.notes_of(each.request, self._engine.grid)
            found = msgspec.structs.replace(self._try_out(who, each.alone(), ended), notes=notes)
            if in_vain:
                found = msgspec.structs.replace(found, kept_back=would_be_kept_back(KeptBack(in_vain=in_vain)))
            if each.within:
                found = without_start(found)
            jobs.append(
                DryRunGraphJob(
                    name=each.name,
                    waits_for=[*dict.fromkeys(graph[other.job].name for other in each.within)],
                    after={condition: [*names] for condition, names in after.items()},
                    processors=each.request.processors,
                    elements=0 if each.request.array is None else each.request.array.size,
                    dry_run=found,
                )
            )
            await asyncio.sleep(0)  # let the event loop's other tasks run
        return DryRunGraph(jobs=jobs)

    async def _graph(self, who: Principal, wish: Submission) -> list[GraphJob]:
        sites = [site.name for site in self._engine.grid.sites]
        names = self._engine.catalogue.names()
        graph = []
        for each in await self._submissions.read_graph(who, wish, sites=sites, policies=names):
            request = each.request
            with about_job(wish, each.name):
                if request.after:
                    request = await with_element_numbers(who, request, self._engine)
                await self._check(who, request)
            graph.append(msgspec.structs.replace(each, request=request))
        check_dependencies(sum(len(each.request.after) + len(each.within) for each in graph), self._engine)
        return graph

    async def _ended_before(
        self, who: Principal, wish: Submission, graph: Sequence[GraphJob]
    ) -> list[tuple[EndedJob, ...]]:
        found = []
        for each in graph:
            with about_job(wish, each.name):
                found.append(await ended_before(who, each.request, self._engine))
        return found

    async def _check(self, who: Principal, request: Request) -> None:
        """Check that the caller may submit the job, and read the files that it names."""
        check_rights(who, request, self._engine.grid)
        await self.downloads.check_files(who, request)

    async def missing_contents(self, who: Principal, files: str) -> MissingContents:
        """Return which contents of a job's files the caller has yet to send. Needs ``submit``."""
        who.need(Scope.SUBMIT)
        return await self._contents.missing(who, files)

    async def receive_content(
        self, who: Principal, checksum: str, size_bytes: int, offset: int, data: bytes
    ) -> ContentState:
        """Receive a piece of a travelling file; it is on disk when this returns. Needs ``submit``."""
        who.need(Scope.SUBMIT)
        shortage = "" if self._storage is None else self._storage.shortage()
        if shortage:
            raise UnavailableError(shortage)
        return await self._contents.receive(who, checksum, size_bytes, offset, data)

    async def spawned_tasks(self, who: Principal, job: int, wish: SpawnWish) -> SpawnedTasks:
        """Return the tasks that a text adds to a job. Rights as for ``JobChanges.spawn``; changes nothing."""
        if not who.may(Scope.OPERATE):
            who.need(Scope.SUBMIT)
        tasks = await self._submissions.read_spawned(who, wish)
        there = await self.changes.names_beside(who, job, tasks)
        if there is not None and not tasks.fit_beside(there):
            await self._submissions.read_spawned(who, wish, there)  # raises the error with its place in the text
        return tasks

    async def dry_run(self, who: Principal, wish: Submission) -> DryRun:
        """Return where the job would go now. Needs ``submit``, since reading a description is work; changes
        nothing."""
        who.need(Scope.SUBMIT)
        request = await self._request(who, wish)
        await self._check(who, request)
        ended = await ended_before(who, request, self._engine)
        await self._engine.freshen()
        answer = self._try_out(who, request, ended)
        notes = await self._submissions.notes(wish, request, self._engine.grid)
        return msgspec.structs.replace(answer, notes=notes)

    def _try_out(self, who: Principal, request: Request, ended: Sequence[EndedJob]) -> DryRun:
        scheduler = self._engine.scheduler
        now = self._engine.now()
        kept_back = would_keep_back(scheduler.ledger, request, ended, now)
        answer = try_out(
            request,
            guest=who.guest,
            catalogue=self._engine.catalogue,
            default_policy=self._engine.grid.scheduler.policy,
            scheduler=scheduler,
            owner=who.name,
            sees_all=who.sees_all,
            now=now if kept_back.begins_at is None else kept_back.begins_at,
        )
        why = would_be_kept_back(kept_back)
        answer = msgspec.structs.replace(answer, kept_back=why, begins_at=kept_back.begins_at)
        nobody_knows = kept_back.is_by_more_than_time or answer.refusal is not None
        return without_start(answer) if why and nobody_knows else answer

    async def jobs(
        self,
        who: Principal,
        *,
        states: frozenset[str] = frozenset(),
        owner: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        array: int | None = None,
        which: ChosenJobs = ALL_JOBS,
    ) -> Page[JobSummary]:
        """List jobs, the newest first, ended ones included, an array as one job; with ``array`` its elements that
        have been made instead; filtered by ``which``. Needs ``read``."""
        who.need(Scope.READ)
        check_limit(limit)
        if not states <= _STATES:
            unknown = min(states - _STATES)
            raise InvalidError(f"state: there is no state {unknown!r}; {suggest(unknown, _STATES_IN_ORDER)}")
        if array is not None and (await self._records.row(who, array)).elements is None:
            raise InvalidError(f"array: job {array} is not an array and has no elements; see koala job show {array}")
        before = None if cursor is None else read_number_cursor("jobs", cursor)
        if not who.sees_all:
            if owner is not None and owner != who.name:
                return Page(items=[])
            owner = who.name
        # People see an array as running or waiting; the table has another state for it.
        arrays = self._arrays_standing(states, owner, before) if array is None else []
        arrays = [row for row in arrays if which.has(row)]
        rows = await query(
            self._engine.store.jobs,
            owner=owner,
            states=states,
            before=before,
            limit=limit + 1,
            array=array,
            which=which,
        )
        newest = {row.id: row for row in (*arrays, *rows)}
        found = [newest[number] for number in sorted(newest, reverse=True)[: limit + 1]]
        waiting = (row.id for row in found[:limit] if row.state == JobState.WAITING)
        ledger = self._engine.scheduler.ledger
        in_line = places_in_line(ledger, waiting)
        return Page(
            items=[job_summary(row, ledger, in_line.get(row.id)) for row in found[:limit]],
            next=write_cursor("jobs", str(found[limit - 1].id)) if len(found) > limit else None,
        )

    def _arrays_standing(self, states: frozenset[str], owner: str | None, before: int | None) -> list[StoredJob]:
        """Return the unfolding arrays that people see in one of these states."""
        unfolding = self._engine.rows.in_state(JobState.UNFOLDING, owner=owner)
        return [row for row in unfolding if standing(row) in states and (before is None or row.id < before)]

    async def job(self, who: Principal, job: int) -> JobDetail:
        """Return one job. Needs ``read``."""
        who.need(Scope.READ)
        row = await self._records.row(who, job)
        request = await self._records.request_of(job)
        runs = [
            ComponentRun.of(each, workspace=self._engine.workspace_of(each))
            for each in await self._records.components(job)
        ]
        transfers = await query(self._engine.store.transfers, job)
        tasks = task_infos(request)
        scheduler = self._engine.scheduler
        live = scheduler.ledger.jobs.get(job)
        return JobDetail.of(
            row,
            **as_of_now(row, scheduler.ledger, self._records.place_in_line(row)),
            placement_tries=self._records.placement_tries(row),
            description=await self._described(who, request),
            asked=asked_in_words(row, request),
            tasks=tasks,
            walltime_s=request.walltime_s if live is None else live.walltime_s,
            usage=usage_info(runs, sum(each.tasks * each.memory_bytes for each in tasks)),
            components=runs,
            transfers=CallerView(self._engine, who).transfers_of(job, transfers),
            files=job_files(request),
            traffic=scheduler.traffic(job),
            checkpoint=last_checkpoint(row, scheduler.checkpoint(job, self._engine.now())),
            outputs=await self.downloads.outputs(who, job) if request.has_outputs else [],
        )

    async def explain(self, who: Principal, job: int) -> Explanation:
        """Explain where the job stands and why, with its whole story. Needs ``read``."""
        who.need(Scope.READ)
        row = await self._records.row(who, job)
        found = self._standing(who, row)
        return msgspec.structs.replace(found, story=await self._records.story(row))

    def _standing(self, who: Principal, row: StoredJob) -> Explanation:
        """Explain where the job stands and why, without the story."""
        scheduler, job = self._engine.scheduler, row.id
        if row.explanation is not None:
            return msgspec.convert({**row.explanation, "since": row.since}, Explanation)
        explained = scheduler.explain(job)
        if explained is None:
            return bare_explanation(row)
        stuck = [
            f"{each.site}: {words}"
            for each in self._engine.components_of(job)
            for words in self._engine.defects_of(each.site, each.token)
        ]
        under_way = self._engine.files_under_way()
        stuck += [
            f"it waits for its files at {site}, where {there} of {size_bytes} bytes are"
            for each in self._engine.components_of(job)
            if each.token in under_way
            for site, there, size_bytes in [under_way[each.token]]
        ]
        stuck += [f"{why}; it is tried again" for why in self._engine.outputs.troubles(job)]
        more = f". {'; '.join(stuck)}" if stuck else ""
        live = scheduler.ledger.jobs.get(job)
        length = None if live is None or explained.place_in_line is None else len(scheduler.ledger.queue_of(live))
        found = explanation(explained, row.since, length, self._engine.now(), more)
        if found.place_in_line is not None:
            order, problem = self._engine.grid.scheduler.order, scheduler.ledger.order_problem
            found = msgspec.structs.replace(found, order=order, order_problem=problem)
        return visible_to(None if who.sees_all else who.name, found, scheduler.ledger.jobs)

    async def wait(self, who: Principal, job: int, timeout_s: float) -> JobSummary:
        """Return the job when it has ended, or as it is after the timeout. Needs ``read``."""
        who.need(Scope.READ)
        if not 0 <= timeout_s <= WAIT_S_MAX:
            raise InvalidError(f"timeout_s: write 0 to {WAIT_S_MAX:g} seconds (WAIT_S_MAX), and ask again")
        row = await self._records.row(who, job)
        if row.ended_at is None:
            await self._engine.wait_ended(job, timeout_s)
            row = await self._records.row(who, job)
        return self._records.summary(row)

    async def output(
        self,
        who: Principal,
        job: int,
        *,
        part: int = 0,
        run: int | None = None,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65_536,
    ) -> Output:
        """Return output of a component: in the job's last run, or in run 1, 2, ... (a run is one opening of the
        barrier; the last run includes one whose barrier has not opened yet). Needs ``read``."""
        who.need(Scope.READ)
        check_range(stream, offset, limit)
        await self._records.row(who, job)
        component = choose(job, await self._records.components(job), part, run)
        if component.site not in {site.name for site in self._engine.grid.sites}:
            raise NotFoundError(
                f"the output of component {component.token} is at {component.site}: this site is no longer in the "
                "grid; start the daemon with a grid that has it"
            )
        which = cast(Literal["stdout", "stderr"], stream)
        return await read_output(self._engine.site(component.site), component, which, offset, limit)

    # -------------------------------------------------------------------------------------------- files

    async def files(
        self, who: Principal, *, limit: int = 100, cursor: str | None = None, prefix: str = ""
    ) -> Page[FileInfo]:
        """List the replica catalogue by name. Needs ``read``."""
        who.need(Scope.READ)
        check_limit(limit)
        after = None if cursor is None else read_cursor("files", cursor)
        found, goes_on = await self.downloads.page(who, after=after, prefix=prefix, limit=limit)
        return Page(
            items=[file_info(entry) for entry in found],
            next=None if goes_on is None else write_cursor("files", goes_on),
        )

    async def file(self, who: Principal, name: str) -> FileInfo:
        """Return one file. Needs ``read``."""
        who.need(Scope.READ)
        entry = await query(self._engine.store.file, name)
        if entry is None or not await self.downloads.is_visible(who, name):
            raise NotFoundError(f"the catalogue has no file {name!r}; look at the list of files")
        return file_info(entry)

    async def outputs_of(self, who: Principal, job: int, *, after: int = 0) -> list[OutputInfo]:
        """List the registered outputs of a job; of an array, the outputs of elements after the job ``after``, up to
        the end of an element. Needs ``read``."""
        who.need(Scope.READ)
        return await self.downloads.outputs(who, job, after=after)

    async def read_file(self, who: Principal, name: str, *, offset: int = 0, limit: int) -> bytes:
        """Return bytes of a file of the catalogue. Needs ``read``."""
        who.need(Scope.READ)
        return await self.downloads.read(who, name, offset, limit)

    async def read_files(self, who: Principal, names: Sequence[str]) -> list[tuple[ReadFile, bytes]]:
        """Return the first of these files that fit into one answer. Needs ``read``."""
        who.need(Scope.READ)
        return await self.downloads.read_whole(who, names)

    async def register(self, who: Principal, wish: Registration) -> FileInfo:
        """Register a new file with its first replica, or another replica of a known file: from a path (only the
        daemon's own user, since the daemon reads it with its own rights) or a URL. Needs ``operate``."""
        who.need(Scope.OPERATE)
        if wish.path is not None and not who.owner:
            raise ForbiddenError(
                "path: only the user who runs the daemon may register files of its machine; name a URL instead"
            )
        return file_info(await self._catalogue.register(wish))

    async def replicate(self, who: Principal, wish: Replication) -> FileInfo:
        """Copy a replica to one more site; returns when it is there. Needs ``operate``."""
        who.need(Scope.OPERATE)
        return file_info(await self._catalogue.replicate(wish))

    async def forget(self, who: Principal, wish: Forgetting) -> Forgotten:
        """Forget replicas or files; files that running jobs read stay until they end. Needs ``operate``, or
        ``submit`` for outputs of the caller's jobs."""
        found = await self._choice.files(who, wish)
        names = found[:FORGOTTEN_AT_ONCE_MAX]
        waiting = self._catalogue.waiting_for(found, wish.site)
        sizes = [each.size_bytes for name in found if (each := self._engine.entries.get(name)) is not None]
        if not wish.preview:
            if waiting and not wish.force:
                raise still_wanted(waiting)
            await self._catalogue.forget(names, wish.site, force=wish.force, by=who.name)
        return Forgotten(
            files=list(names), more=len(found) - len(names), size_bytes=sum(sizes), waiting=waiting[:WAITING_TOLD_MAX]
        )

    # ------------------------------------------------------------------------------------------ journal

    async def journal(
        self, who: Principal, *, after: int = 0, limit: int = 100, job: int | None = None
    ) -> list[JournalEntry]:
        """Return entries of the journal, oldest first, from the entry after ``after`` on. Needs ``read``."""
        who.need(Scope.READ)
        check_limit(limit)
        check_after(after)
        if job is not None:
            await self._records.row(who, job)
        owner = None if who.sees_all else who.name
        return await read_journal(self._engine, after=after, limit=limit, job=job, owner=owner)

    def follow(
        self, who: Principal, *, after: int | None = None, job: int | None = None
    ) -> AsyncIterator[JournalEntry]:
        """Follow the journal from the entry after ``after`` on (None: from now on), without end. A reader that falls
        behind reads from the store what it missed, so nothing is left out. Needs ``read``."""
        return one_by_one(self.follow_rounds(who, after=after, job=job))

    def follow_rounds(
        self, who: Principal, *, after: int | None = None, job: int | None = None
    ) -> AsyncIterator[list[RenderedEntry]]:
        """Follow the journal in rounds, each with all that there is for the reader by then."""
        who.need(Scope.READ)
        if after is not None:
            check_after(after)
        return self._follow(who, self.last_seq if after is None else after, job)

    async def _follow(self, who: Principal, after: int, job: int | None) -> AsyncIterator[list[RenderedEntry]]:
        if job is not None:
            await self._records.row(who, job)
        owner = None if who.sees_all else who.name
        async with aclosing(self._journal.follow(after=after, job=job, owner=owner)) as rounds:
            async for found in rounds:
                yield found

    @property
    def last_seq(self) -> int:
        """The number of the newest entry in the journal."""
        return self._engine.last_seq

    # ------------------------------------------------------------------------------------------- health

    @property
    def failure(self) -> str:
        """Why the daemon cannot work at present; empty while it can."""
        return self._engine.failure

    def warnings(self, who: Principal) -> list[str]:
        """Return warnings for operators while the daemon works; only operators see those about jobs."""
        storage = "" if self._storage is None else self._storage.warning()
        found = [each for each in (storage, account_warning(self._engine.grid)) if each]
        return found + (operator_warnings(self._engine) if who.may(Scope.OPERATE) else [])

    def about_jobs_of(self, user: str) -> str:
        """Return what the daemon's own user should know before letting a guest of this name submit; empty if
        nothing."""
        return guest_notice(user, self._engine.grid)

    async def numbers(self) -> Metrics:
        """Return the daemon's metrics for monitoring. No job and no user is named."""
        counts = await self._engine.counts(None)
        return gather_metrics(self._engine, counts)

    # ------------------------------------------------------------------------------------------------ parts

    async def _request(self, who: Principal, wish: Submission) -> Request:
        sites = [site.name for site in self._engine.grid.sites]
        request = await self._submissions.read(who, wish, sites=sites, policies=self._engine.catalogue.names())
        return await with_element_numbers(who, request, self._engine) if request.after else request

    async def _described(self, who: Principal, request: Request) -> str:
        """Write the request as a text. A large one takes seconds."""
        if request_characters(request) <= SMALL_REQUEST_CHARACTERS_MAX:
            return await offload(write_job_yaml, request)
        return await self._submissions.write(who, request)
