"""Driver one: runs the scheduler in virtual time, from the first submission until every job has ended.

The scheduler is the one that runs live; ``koala.simulator.world.world`` simulates everything around it.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from koala.core import JobExplanation, JobState, Scheduler
from koala.descriptions.workload.form import WorkloadFile
from koala.model.facts import ElementMade, JobEnded, JobPlaced, JobRequeued, TurnEntry
from koala.model.grid import Grid
from koala.model.messages import AnyEvent, JobOutcome, JobSubmitted, ProbeLink
from koala.model.request import JobId, Request, SiteName
from koala.policies import Catalogue, PolicyError, UnknownPolicyError
from koala.policies.catalogue import WASE, Form, dividing, marked_functions
from koala.simulator.reading import with_policy_files
from koala.simulator.report.remarks import notes
from koala.simulator.result import Result, SiteUse, Unfinished
from koala.simulator.told_times import ToldTimes
from koala.simulator.traces.node_mapping import SiteFailures
from koala.simulator.workloads.generators import workload_from_file
from koala.simulator.workloads.workload import Workload
from koala.simulator.world.site import SimulatedSite
from koala.simulator.world.world import INFINITY, World
from koala.words.standing import meaning

# A job that could fit some day is awaited for this long while the scheduler has nothing else to do.
HORIZON_DAYS = 30
HORIZON_S = HORIZON_DAYS * 86_400.0
# Days of computing: a run with this many events is cut off, and its report says so.
EVENTS_MAX = 1_000_000_000
PROGRESS_EVENTS = 4_096
_FAILED = JobOutcome.FAILED


class BrokenPolicyError(ValueError):
    """A user's policy raised an error or gave a wrong answer: the run ends.

    >>> from koala.policies import policy
    >>> from koala.simulator import BrokenPolicyError, Workload, clusters_in_short, simulate
    >>> @policy("GREEDY")
    ... def greedy(idle, sizes, left, chosen):
    ...     chosen[0] = 7  # a site that is not there
    ...     return -1
    >>> try:
    ...     simulate(clusters_in_short("2x8"), Workload.from_arrays([0.0], [4], [60.0]), policy="GREEDY")
    ... except BrokenPolicyError as error:
    ...     print(str(error).partition(";")[0])
    job 1 (job): the policy 'GREEDY' (from __main__) gave component 0 the site 7, of 0 to 1
    """

    def for_user(self) -> str:
        """Return the job, the policy, its error, and what to do."""
        return str(self)


def _check_kinds(grid: object, workload: object) -> None:
    """Raise ``TypeError`` for a name in place of a grid or a workload, and say how to read it."""
    if not isinstance(grid, Grid):
        raise TypeError(
            f"grid: {grid!r} is no Grid; read it with example_grid(NAME) or read_grid_file(PATH) of koala.simulator"
        )
    if not isinstance(workload, Workload | WorkloadFile):
        raise TypeError(
            f"workload: {workload!r} is no Workload; read it with example_workload(NAME), read_workload_file(PATH) "
            "or Workload.from_arrays of koala.simulator"
        )


def simulate(
    grid: Grid,
    workload: Workload | WorkloadFile,
    *,
    policy: str | Callable[..., int] | None = None,
    order: str | Callable[..., Any] | None = None,
    policy_files: Iterable[str | Path] = (),
    seed: int = 1,
    log: Callable[[bytes], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    catalogue: Catalogue | None = None,
    until_s: float = INFINITY,
    events_max: int = EVENTS_MAX,
    stop: Callable[[], bool] | None = None,
    failures: SiteFailures | None = None,
) -> Result:
    """Run a workload on a grid with the scheduler that also runs live. The same arguments give the same result.

    - ``workload``: from a file, a trace, an example, or made from arrays or arrivals;
    - ``policy``: replaces the grid's, a name or a function marked with ``@policy``. The names are those of Koala,
      of installed packages, of the policy files that the grid or ``policy_files`` name, and of functions marked in
      imported modules; with a ``catalogue``, those in it alone;
    - ``order``: which waiting job comes first, replaces the grid's order, a name or a function marked with
      ``@order``; names are resolved like those of policies;
    - ``seed``: the source of everything random;
    - ``log``: receives every event and command, as lines of JSON in pieces of any length;
    - ``progress``: called now and then with the number of jobs that have ended, and of all jobs;
    - ``until_s``, ``events_max``, ``stop``: cut the run off at a virtual time, after a number of events, or once
      ``stop`` returns true. The result is then not ``complete``;
    - ``failures``: nodes fail and return by a failure trace.

    A job that can never start ends the run as unfinished, with the reason. A ``WorkloadError`` means that a job names
    something that the grid does not have; a ``BrokenPolicyError``, that your policy or order gave a wrong answer.

    >>> from koala.simulator import example_grid, example_workload, simulate
    >>> result = simulate(example_grid("das2"), example_workload("koala2006-w1"), policy="CM")
    >>> round(result.metrics()["response_s"]["mean"], 1)
    100.3
    """
    _check_kinds(grid, workload)
    if isinstance(workload, WorkloadFile):
        workload = workload_from_file(workload)
    files = workload.files(grid, seed)
    if files:
        grid = msgspec.structs.replace(grid, files=(*grid.files, *files))
    known = catalogue
    if known is None:
        known = Catalogue.of(with_policy_files(grid, policy_files).policy_files, marked_functions())
    if callable(policy):
        policy = known.add_function(policy).name
    if policy is not None:
        grid = msgspec.structs.replace(grid, scheduler=msgspec.structs.replace(grid.scheduler, policy=policy))
    if callable(order):
        order = known.add_function(order).name
    if order is not None:
        grid = msgspec.structs.replace(grid, scheduler=grid.scheduler.with_order(order))
    workload.check(grid, known)
    with _no_search_for_cycles():
        run = _Run(grid, workload, seed, log, known, until_s, failures)
        return run.turn(progress, events_max, stop)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Disable Python's search for reference cycles: a run frees its objects at once, so the search would find next to
    nothing and take a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Run:
    """One run: the scheduler, its world, and the record of both."""

    def __init__(
        self,
        grid: Grid,
        workload: Workload,
        seed: int,
        log: Callable[[bytes], None] | None,
        catalogue: Catalogue,
        until_s: float,
        failures: SiteFailures | None,
    ) -> None:
        self._grid = grid
        self._seed = seed
        self._jobs = workload.jobs
        self._catalogue = catalogue
        self._until_s = until_s
        self._world = World(grid, workload, seed, failures)
        self._scheduler = Scheduler(grid, catalogue)
        self._log = RunLog(log)
        self._told = ToldTimes(self._scheduler) if grid.scheduler.plan_depth else None
        self._requests: dict[JobId, tuple[Request, float]] = {}
        self._arrays: set[JobId] = set()
        self._ended: list[tuple[JobEnded, Request]] = []
        self._placed: set[JobId] = set()
        self._first_submission_s = 0.0
        self._events = 0
        self._stopped = ""  # why the run was cut off
        self._cut_off_s: float | None = None  # the time of the cut, if it was given
        self._gave_up = ""  # why nothing more was expected of jobs that could fit
        # The end of the measured period, and the processor-seconds (ours, others) used by then.
        self._measured_s: float | None = None
        self._used: dict[SiteName, tuple[float, float]] = {}
        self._records: dict[type[TurnEntry], Callable[[Any], None]] = {
            JobPlaced: self._place,
            JobRequeued: self._requeue,
            ElementMade: self._make_element,
            JobEnded: self._end,
        }
        self._with_users = [
            self._world.sites[site.name] for site in grid.sites if site.simulation.background is not None
        ]

    def turn(
        self, progress: Callable[[int, int], None] | None, events_max: int, stop: Callable[[], bool] | None
    ) -> Result:
        """Pass events to the scheduler and its commands to the world, until nothing is left to do."""
        world, scheduler, write, until_s = self._world, self._scheduler, self._log.write, self._until_s
        handle = scheduler.handle
        told, requests, ledger = self._told, self._requests, scheduler.ledger
        events = quiet_events = 0
        quiet_since_s = 0.0
        look_at = min(PROGRESS_EVENTS, events_max)
        while (event := world.next(scheduler.due_at, until_s)) is not None:
            events += 1
            now = event.at
            if type(event) is JobSubmitted:
                if not requests and not self._ended:
                    self._first_submission_s = now
                requests[event.job] = event.request, now
            entries = handle(event).entries
            write(event, entries)
            if ledger.order_problem:
                raise BrokenPolicyError(ledger.order_problem)
            if told is not None and told.planned:
                told.ask()
            if entries and self._perform(entries, now):
                quiet_events = 0
                quiet_since_s = now
            else:
                # The check for possible further events is slow for a long queue: it runs less and less often.
                quiet_events += 1
                quiet_s = now - max(quiet_since_s, world.nodes_changed_s)
                if (quiet_events & (quiet_events - 1) == 0 or quiet_s > HORIZON_S) and self._is_stuck(quiet_s):
                    break
            if not requests and not world.arrivals_left:
                break
            if events >= look_at:
                if progress is not None:
                    progress(len(self._ended), self._jobs)
                if stop is not None and stop():
                    self._stopped = f"interrupted at {now:.0f} s of virtual time"
                    break
                if events >= events_max:
                    self._stopped = f"cut off after {events} events (EVENTS_MAX)"
                    break
                look_at = min(events + PROGRESS_EVENTS, events_max)
        self._events = events
        if progress is not None:
            progress(len(self._ended), self._jobs)
        if event is None and not (world.is_over and scheduler.due_at == INFINITY):
            self._stopped = f"cut off at {until_s:.0f} s of virtual time, as asked"
            self._cut_off_s = until_s
        return self._result()

    def _perform(self, entries: list[TurnEntry], now: float) -> bool:
        """Perform all the scheduler's commands, and record its facts; return True if anything that helps a job was
        among them."""
        performers, records = self._world.performers, self._records
        for entry in entries:
            kind = type(entry)
            performers[kind](entry, now)
            if kind in records:
                records[kind](entry)
        return type(entries[0]) is not ProbeLink or any(type(entry) is not ProbeLink for entry in entries)

    def _place(self, fact: JobPlaced) -> None:
        self._placed.add(fact.job)

    def _requeue(self, fact: JobRequeued) -> None:
        self._placed.discard(fact.job)

    def _make_element(self, fact: ElementMade) -> None:
        self._requests[fact.job] = self._requests[fact.array]
        self._arrays.add(fact.array)

    def _end(self, fact: JobEnded) -> None:
        request, _ = self._requests.pop(fact.job)
        if fact.job in self._arrays:  # its elements are the jobs
            self._mark_if_last()
            return
        self._placed.discard(fact.job)
        self._mark_if_last()
        self._ended.append((fact, request))
        if self._told is not None:
            self._told.ended(fact)
        if fact.outcome is _FAILED and self._is_by_broken_policy(fact, request):
            # The scheduler continues after a policy failed, since live there are jobs of others; a study need not.
            raise BrokenPolicyError(f"job {fact.job} ({request.name}): {fact.reason}")

    def _is_by_broken_policy(self, fact: JobEnded, request: Request) -> bool:
        try:
            policy = self._catalogue.find(self._grid.scheduler.policy if request.policy is None else request.policy)
        except UnknownPolicyError:
            return False
        return policy.checked and fact.reason.startswith(str(PolicyError(policy.name, policy.origin, "")))

    # ------------------------------------------------------------------------------------- giving up

    def _is_stuck(self, quiet_s: float) -> bool:
        """Return True if nothing more is expected: nothing is under way, and waiting jobs can never fit, or wait too
        long."""
        if self._world.busy:
            return False
        if quiet_s > HORIZON_S:
            self._gave_up = f"given up after {HORIZON_DAYS} days in which nothing changed for it: "
            return True
        return self._nothing_can_ever_fit()

    def _nothing_can_ever_fit(self) -> bool:
        ledger = self._scheduler.ledger
        if ledger.high.limited or ledger.low.limited:
            return False  # their attempts run out, and then they fail
        for job in self._requests:
            explanation = self._scheduler.explain(job)
            if explanation is not None and _waits_for_others(explanation):
                continue
            if explanation is None or explanation.refusal is None or not explanation.refusal.permanent:
                return False
        return bool(self._requests)

    # ------------------------------------------------------------------------------------- the result

    def _mark_if_last(self) -> None:
        """After what may be the last end of all, record what was used until now, for every site that may see more
        use."""
        if self._placed:
            return
        now = self._world.now
        still_used = self._world.sites.values() if self._world.components.alive else self._with_users
        self._measured_s = now
        self._used = {site.name: _used(site, now) for site in still_used}

    def _uses(self, until_s: float) -> list[SiteUse]:
        """Return the use of the sites from the first submission until the given time."""
        period_s = until_s - self._first_submission_s
        uses = []
        for site in self._world.sites.values():
            ours, others = self._used.get(site.name) or _used(site, until_s)
            whole = period_s * site.installed if period_s > 0 else INFINITY
            uses.append(SiteUse(site=site.name, processors=site.installed, ours=ours / whole, others=others / whole))
        return uses

    def _result(self) -> Result:
        world = self._world
        end_s = world.now if self._cut_off_s is None else self._cut_off_s
        measured_s = self._measured_s
        if self._stopped or self._placed or measured_s is None:
            measured_s = end_s
            self._used = {}
        requests = [request for _, request in self._ended] + [request for request, _ in self._requests.values()]
        return Result(
            ended=self._ended,
            unfinished=[self._unfinished(job, *known) for job, known in self._requests.items()],
            uses=self._uses(measured_s),
            voids=world.voids(self._first_submission_s, measured_s),
            policy=self._grid.scheduler.policy,
            totals_policy=self._totals_policy(),
            tasks_policy=self._tasks_policy(),
            seed=self._seed,
            first_submission_s=self._first_submission_s,
            end_s=end_s,
            events=self._events,
            component_failures=world.components.failures,
            log_sha256=self._log.close(),
            stopped=self._stopped,
            not_submitted=self._jobs - len(requests),
            told_times=None if self._told is None else self._told.as_json(),
            spawns=world.spawns(),
            notes=notes(requests, self._grid.scheduler.policy, self._catalogue),
        )

    def _totals_policy(self) -> str:
        """Return the policy that divides totals: the grid's, by its name there, or its replacement."""
        grids = self._catalogue.find(self._grid.scheduler.policy)
        return self._grid.scheduler.policy if grids.form.divides else dividing(grids).name

    def _tasks_policy(self) -> str:
        """Return the policy that maps jobs of tasks: the grid's, or its replacement."""
        grids = self._catalogue.find(self._grid.scheduler.policy)
        return self._grid.scheduler.policy if grids.form is Form.TASKS else WASE.name

    def _unfinished(self, job: JobId, request: Request, submitted_s: float) -> Unfinished:
        """Return a job that was left behind, with the scheduler's own words about it."""
        explanation = self._scheduler.explain(job)
        assert explanation is not None, "the scheduler forgets a job only when it has ended"
        if explanation.refusal is not None:
            hint = "" if explanation.refusal.permanent or self._stopped else self._gave_up
            reason = f"{hint}{explanation.refusal.reason}; {explanation.refusal.cure}"
        elif self._stopped:
            reason = f"{meaning(explanation)}; the run was cut off"
        else:
            reason = f"{meaning(explanation)}; nothing more could happen"
        return Unfinished(
            job,
            request,
            submitted_s,
            reason,
            explanation.placement_tries,
            explanation.claiming_tries,
            explanation.runs,
            explanation.failures,
            explanation.preemptions,
            explanation.gained_processor_s,
            explanation.wasted_processor_s,
            explanation.gpu_s,
        )


def _used(site: SimulatedSite, now: float) -> tuple[float, float]:
    return site.used_processor_s("ours", now), site.used_processor_s("others", now)


# Messages are immutable, so their encoding can be batched.
FLUSH_LINES = 512


class LoggedEntry(msgspec.Struct, gc=False):
    """The line of a command, or of a fact."""

    at: float
    do: TurnEntry


class RunLog:
    """Collects lines, encodes and hashes them in pieces, and passes them on if a receiver exists."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self._sink = sink
        self._encoder = msgspec.json.Encoder()
        self._lines: list[AnyEvent | LoggedEntry] = []
        self._hash = hashlib.sha256()

    def write(self, event: AnyEvent, entries: list[TurnEntry]) -> None:
        """Write an event, and the scheduler's answer to it."""
        lines = self._lines
        lines.append(event)
        if entries:
            at = event.at
            for entry in entries:
                lines.append(LoggedEntry(at, entry))
        if len(lines) > FLUSH_LINES:
            self._flush()

    def _flush(self) -> None:
        piece = self._encoder.encode_lines(self._lines)
        self._lines.clear()
        self._hash.update(piece)
        if self._sink is not None:
            self._sink(piece)

    def close(self) -> str:
        """Pass on the rest, and return the SHA-256 of the whole log in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()


def _waits_for_others(explanation: JobExplanation) -> bool:
    """Return True if only other jobs, which are checked themselves, can let it start."""
    if explanation.state is JobState.UNFOLDING:
        return True
    return bool(explanation.waits_for) and not explanation.held and explanation.begins_at is None
