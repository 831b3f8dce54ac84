"""Turns the text of a submission into a valid request, and finds where it would go now.

Reading a large text takes seconds, and so does finding the clusters of a job of tasks: both are done in separate
processes and in turns. No caller's texts keep another's waiting for long, and nothing else in the daemon waits for
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import msgspec

from koala.core import Scheduler
from koala.core.preemption.victims import Victims, lost_processor_s
from koala.core.refusals import closed_refusal
from koala.daemon.engine.loop import Engine
from koala.daemon.offload import query
from koala.daemon.service.answers import dry_run, with_expected_start
from koala.daemon.service.principal import Principal
from koala.daemon.service.submission_notes import some_sites, submission_notes
from koala.daemon.service.submitted_texts import (
    Unreadable,
    all_clusters,
    in_graph,
    lacks_clusters,
    read_graph_submission,
    read_spawned_submission,
    read_submission,
    with_clusters,
)
from koala.daemon.workers.pool import Workers
from koala.descriptions import job_notes, write_job_yaml
from koala.descriptions.job.order import JobNumber
from koala.model.api import DryRun, Refusal, Scope
from koala.model.api.questions import SpawnWish, Submission
from koala.model.errors import ForbiddenError, InvalidError, TooManyError
from koala.model.grid import Grid
from koala.model.job_array import ArraySpec, element_number, read_array
from koala.model.messages import EndedJob, JobOutcome
from koala.model.request import GraphJob, Priority, Request
from koala.model.task_graph import SpawnedTasks
from koala.policies import Catalogue, PolicyError, UnknownPolicyError, UnknownSiteError
from koala.policies.interface import can_ever_fit, compile_demand, staging_s, to_placement
from koala.store import NUMBER_MAX, StoredJob

Text: TypeAlias = Submission | SpawnWish
Read = TypeVar("Read", Request, tuple[GraphJob, ...], SpawnedTasks)

# Texts up to this size are read in a thread, so that a small job never waits for somebody's large one.
SMALL_TEXT_CHARACTERS_MAX = 4_096
# At most this much text of one caller may wait to be read, or one larger text alone.
WAITING_TEXT_CHARACTERS_MAX = 1_048_576
# All jobs together wait for at most this many others, which bounds the cost of one end.
DEPENDENCIES_LIVE_MAX = 400_000


@dataclass(slots=True)
class _Turn:
    """One caller's texts of one kind: how much waits, and the lock under which one at a time is read."""

    characters: int = 0
    texts: int = 0
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)


class SubmissionReader:
    """Reads the texts of many callers: small ones in a thread, large ones in the workers, one text of a caller at a
    time. Requested large texts are written likewise. So a text waits for at most one of each kind of every other
    caller. Lives in one event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="koala-parse")
        self._turns: dict[tuple[str, bool, str], _Turn] = {}

    def close(self) -> None:
        """Stop reading."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def read(
        self, who: Principal, wish: Submission, *, sites: Collection[str], policies: Collection[str]
    ) -> Request:
        """Return the request that a text describes, including the clusters of its tasks. Raises ``InvalidError`` with
        every problem found, ``TooManyError`` if too much of this caller waits already, ``TooLargeError`` if it takes
        too long."""
        async with self._turn(who, wish):
            outcome = await self._outcome(wish, read_submission, sites, policies)
            return await self._workers.run(with_clusters, outcome) if lacks_clusters(outcome) else outcome

    async def read_graph(
        self, who: Principal, wish: Submission, *, sites: Collection[str], policies: Collection[str]
    ) -> tuple[GraphJob, ...]:
        """Return the jobs that a text describes; otherwise as ``read``."""
        async with self._turn(who, wish):
            return await self._with_clusters(await self._outcome(wish, read_graph_submission, sites, policies))

    async def read_spawned(
        self, who: Principal, wish: SpawnWish, there: Collection[str] | None = None
    ) -> SpawnedTasks:
        """Return the tasks that a text adds to a running job, checked against the job's tasks if these are given;
        otherwise as ``read``."""
        async with self._turn(who, wish):
            return await self._outcome(wish, read_spawned_submission, *([] if there is None else [there]))

    async def _outcome(self, wish: Text, read: Callable[..., Read | Unreadable], *known: Collection[str]) -> Read:
        """Return a text's meaning, read in a thread or by a worker."""
        if _is_small(wish):
            outcome = await asyncio.get_running_loop().run_in_executor(
                self._thread, functools.partial(read, wish, *known)
            )
        else:
            outcome = await self._workers.run(read, wish, *known)
        if isinstance(outcome, Unreadable):
            raise InvalidError(outcome.message, outcome.problems)
        return outcome

    @contextlib.asynccontextmanager
    async def _turn(self, who: Principal, wish: Text) -> AsyncIterator[None]:
        """Wait for the caller's turn to have a text read."""
        with self._turn_of(who, "small" if _is_small(wish) else "large", len(wish.description)) as turn:
            async with turn.alone:
                yield

    async def _with_clusters(self, graph: tuple[GraphJob, ...]) -> tuple[GraphJob, ...]:
        lacking = [job.request for job in graph if lacks_clusters(job.request)]
        if not lacking:
            return graph
        found = iter(await self._workers.run(all_clusters, lacking))
        jobs = []
        for job in graph:
            request = job.request
            if lacks_clusters(request):
                request = msgspec.structs.replace(request, task_clusters=next(found))
            jobs.append(msgspec.structs.replace(job, request=request))
        return tuple(jobs)

    async def notes(self, wish: Submission, request: Request, grid: Grid) -> list[str]:
        """Return the notes on a request and its text: settings without effect in this grid, and missing programs."""

        def read() -> list[str]:
            return [*job_notes(wish.description, wish.source), *submission_notes(request, grid)]

        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    async def notes_of(self, request: Request, grid: Grid) -> list[str]:
        """Return the notes on a job of a graph, whose text is not a batch script."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, submission_notes, request, grid)

    async def write(self, who: Principal, request: Request) -> str:
        """Write a large request as a text, which also takes seconds."""
        with self._turn_of(who, "written", 0) as turn:
            async with turn.alone:
                return await self._workers.run(write_job_yaml, request)

    @contextlib.contextmanager
    def _turn_of(self, who: Principal, sort: str, size: int) -> Iterator[_Turn]:
        key = (sort, who.owner, who.name)
        turn = self._turns.setdefault(key, _Turn())
        if turn.texts and turn.characters + size > WAITING_TEXT_CHARACTERS_MAX:
            raise TooManyError(
                f"descriptions of {who.name} with {turn.characters} characters wait to be read already, and together "
                f"they may have {WAITING_TEXT_CHARACTERS_MAX} (WAITING_TEXT_CHARACTERS_MAX); send one after the other"
            )
        turn.characters += size
        turn.texts += 1
        try:
            yield turn
        finally:
            turn.characters -= size
            turn.texts -= 1
            if not turn.texts:
                del self._turns[key]


def _is_small(wish: Text) -> bool:
    return len(wish.description) <= SMALL_TEXT_CHARACTERS_MAX


class _UnknownJobError(InvalidError):
    """A job waits for something that does not exist for its caller."""

    def __init__(self, what: str, number: JobNumber) -> None:
        self.what, self.cure, self.number = what, "look at the list of jobs", number
        super().__init__(f"{what}; {self.cure}")


@contextlib.contextmanager
def about_job(wish: Submission, name: str) -> Iterator[None]:
    """Report an error of one job in a graph with the job's name and place."""
    try:
        yield
    except _UnknownJobError as error:
        found = in_graph(wish, name, error.what, error.cure, error.number)
        raise InvalidError(found.message, found.problems) from None
    except InvalidError as error:
        found = in_graph(wish, name, error.for_user())
        raise InvalidError(found.message, found.problems) from None


async def with_element_numbers(who: Principal, request: Request, engine: Engine) -> Request:
    """Return the request with numbers for the array elements that it waits for. Raises ``InvalidError`` if there is
    no such array or element for this caller."""
    after = []
    specs: dict[int, ArraySpec | None] = {}
    for each in request.after:
        if each.index is None:
            after.append(each)
            continue
        if each.job not in specs:
            specs[each.job] = await _array(who, each.job, engine)
        spec = specs[each.job]
        number = None if spec is None else element_number(each.job, spec, each.index)
        if number is None:
            unknown = JobNumber(each.job, each.index)
            raise _UnknownJobError(f"after: there is no element {each.job}_{each.index}", unknown)
        after.append(msgspec.structs.replace(each, job=number, index=None))
    return msgspec.structs.replace(request, after=tuple(dict.fromkeys(after))) if after else request


async def _array(who: Principal, number: int, engine: Engine) -> ArraySpec | None:
    """Return the indices of an array that exists for this caller."""
    row = await _visible(who, number, engine)
    if row is None or row.elements is None:
        return None
    job = engine.scheduler.ledger.jobs.get(number)
    if job is not None:
        return job.spec
    await asyncio.sleep(0)  # reading one takes a while, and a job may wait for elements of very many
    return read_array(row.elements.indices)


async def _visible(who: Principal, number: int, engine: Engine) -> StoredJob | None:
    row = engine.live_row(number)
    if row is None and number <= NUMBER_MAX:
        row = await query(engine.store.job, number)
    return row if row is not None and (who.sees_all or row.owner == who.name) else None


def check_dependencies(count: int, engine: Engine) -> None:
    """Raise ``TooManyError`` if all jobs together would wait for too many with these."""
    if count and count + engine.scheduler.ledger.dependencies_open > DEPENDENCIES_LIVE_MAX:
        raise TooManyError(
            f"after: with this jobs would wait for more than {DEPENDENCIES_LIVE_MAX} others (DEPENDENCIES_LIVE_MAX); "
            "submit it when some of them have ended, or let it wait for fewer"
        )


async def ended_before(who: Principal, request: Request, engine: Engine) -> tuple[EndedJob, ...]:
    """Return how the ended jobs that the request waits for have ended. Raises ``InvalidError`` if one does not exist
    for this caller."""
    found = []
    check_dependencies(len(request.after), engine)
    for number in dict.fromkeys(each.job for each in request.after):
        array = engine.scheduler.ledger.array_of(number)
        row = None
        if array is None or number <= array.id + array.elements.made:
            row = await _visible(who, number, engine)
        if row is None and array is not None:
            row = await _visible(who, array.id, engine)  # an element that is still to be made
        if row is None:
            raise _UnknownJobError(f"after: there is no job {number} to wait for", JobNumber(number))
        if row.ended_at is not None:
            found.append(EndedJob(job=number, outcome=JobOutcome(row.state), started=row.runs > 0))
    return tuple(found)


def check_client_token(token: str | None) -> None:
    """Raise ``InvalidError`` for a client token that is not visible text."""
    if token is not None and not token.isprintable():
        raise InvalidError("client_token: it holds characters that are not visible; use letters and digits")


def account_warning(grid: Grid) -> str:
    """Explain ``shared_account`` where it matters; otherwise empty."""
    sharing = [site.name for site in grid.sites if site.shares_account]
    if not grid.shared_account or not sharing:
        return ""
    return (
        f"shared_account: jobs of all users run under the daemon's account at {some_sites(sharing)}; "
        "all who may submit can do there all that the daemon's owner can"
    )


def guest_notice(user: str, grid: Grid) -> str:
    """Explain ``shared_account`` for one user who may submit, or name the sites where their jobs do not run."""
    closed = grid.closed_to_guests
    if not closed:
        return account_warning(grid)
    if len(closed) == len(grid.sites):
        return (
            f"jobs of {user} are refused: every site runs them under the daemon's account, with which they could do "
            "all that its owner can; `shared_account: true` in the grid lets them in all the same"
        )
    return f"jobs of {user} do not run at {some_sites(closed)}, under the daemon's account"


def check_priority(who: Principal, priority: Priority | None) -> None:
    """Raise ``ForbiddenError`` for high priority without the right to it: such a job comes before all others, and may
    take their processors. Operators have that right."""
    if priority is Priority.HIGH and not (who.may(Scope.PRIORITY) or who.may(Scope.OPERATE)):
        raise ForbiddenError(
            f"priority: high needs the scope {Scope.PRIORITY}, which the token of {who.name} does not have; write "
            "`priority: low`, or ask the daemon's owner for a token with `--scope priority`"
        )


def check_rights(who: Principal, request: Request, grid: Grid) -> None:
    """Raise ``ForbiddenError`` for high priority without the right to it, and for a guest's job that could run only
    at sites closed to guests."""
    check_priority(who, request.priority)
    closed = grid.closed_to_guests
    if not who.guest or not closed:
        return
    named = [part.site for part in request.components if part.site in closed]
    if named or len(closed) == len(grid.sites):
        where = named[0] if named else "any site of this grid"
        raise ForbiddenError(
            f"jobs of {who.name} do not run at {where}: they would run under the account of the daemon, and could do "
            "all that its owner can; name a site with an account of its own, or ask the owner to write "
            "`shared_account: true` in the grid"
        )


def try_out(
    request: Request,
    *,
    guest: bool,
    catalogue: Catalogue,
    default_policy: str,
    scheduler: Scheduler,
    owner: str,
    sees_all: bool,
    now: float,
) -> DryRun:
    """Return what the core would answer now. A caller who does not see all gets only the number of others' jobs that
    would be preempted, not their numbers or their work."""
    sites = scheduler.ledger.sites
    view = sites.view
    try:
        demand = compile_demand(request, catalogue.choose(request, default_policy), view.index)
        closed, whole = sites.closed_to(request, guest=guest), demand
        if closed:
            demand = demand.barring(site for each in closed for site in each.sites)
        found = scheduler.preview(demand, request, owner)
        if closed and isinstance(found, Refusal):
            # A job that is too large for any site is refused for that, not for the closed sites.
            most = sites.most()
            fits = can_ever_fit(demand, most, view) or not can_ever_fit(whole, most, view)
            found = closed_refusal(found, closed, sites, fits_elsewhere=fits)
        if isinstance(found, Victims):
            answer = dry_run(to_placement(demand, found.spots, view))
            seen = [job for job in found.jobs if sees_all or job.submitter == owner]
            update = {
                "preempts": [job.id for job in seen],
                "preempts_others": len(found.jobs) - len(seen),
                "lost_processor_s": sum((lost_processor_s(job, scheduler.ledger.now) for job in seen), 0.0),
            }
            return msgspec.structs.replace(answer, **update)
        if not isinstance(found, Refusal):
            answer = dry_run(to_placement(demand, found, view))
            return msgspec.structs.replace(answer, expected_at=now + staging_s(demand, found, view))
        answer = DryRun(policy=demand.policy.name, refusal=found)
        if found.permanent:
            return answer
        expected = scheduler.expected_start_of_new(demand, request, owner)
    except (UnknownPolicyError, UnknownSiteError, PolicyError) as error:
        raise InvalidError(error.for_user()) from None
    answer = msgspec.structs.replace(answer, place_in_line=scheduler.place_of_new(demand, request, owner))
    if expected is None:
        return answer
    return with_expected_start(answer, expected, scheduler.ledger, None if sees_all else owner, now)
