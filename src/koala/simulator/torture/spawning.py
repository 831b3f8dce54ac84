"""Jobs of tasks in a storm that spawn more while they run: this module draws them and checks their promise.

The check keeps its own record of a job's tasks, and of the components that hold them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache

import msgspec

from koala.core import Scheduler
from koala.mapping.random_graphs import random_task_graph
from koala.model.facts import ElementMade, JobEnded, TasksSpawned, Turn
from koala.model.grid import Grid
from koala.model.messages import (
    AnyEvent,
    ComponentEnded,
    JobOutcome,
    JobSubmitted,
    Outcome,
    ReleaseBarrier,
    SpawnAsked,
    StartComponent,
    Token,
)
from koala.model.request import Flexibility, JobId, JobType, Request
from koala.model.task_graph import SpawnedTasks, TaskGraph
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import Arrival

SPAWNED_ONCE = "a spawned task runs once in each run, or is refused"
# A job spawns at most this often, and at most this many tasks each time.
SPAWNS_MAX = 3
SPAWNED_TASKS_MAX = 3
POLICIES = (None, None, "WASE", "WASE-whole", "FCM")
# All storms draw from the same graphs, of this many tasks with this many edges for each, or with just enough edges to
# connect them: the search for the clusters of a new graph takes longer than everything else in a storm, except for a
# tree, which has nothing to search. There are fewer graphs than the cache of clusters holds.
GRAPHS = (
    *((tasks, 0.0) for tasks in (1, 2, 3, 4, 5, 7, 10, 14, 19, 26, 36, 50, 64)),
    *((tasks, 1.5) for tasks in (3, 4, 6, 9, 14)),
    *((tasks, 3.0) for tasks in (5, 8)),
)


def with_spawning(
    rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...], fits_into: float
) -> tuple[Arrival, ...]:
    """In some storms turn jobs that may go anywhere into jobs of tasks, most of which spawn more, soon or late in
    their first run: at most as many as fit into that share of the sites."""
    if rng.random() < 0.5:
        return arrivals
    return tuple(
        _with_spawns(rng, grid, arrival, fits_into) if _may_be(arrival.request) else arrival for arrival in arrivals
    )


def _may_be(request: Request) -> bool:
    """Return True if it could be a job of tasks."""
    return (
        all(component.site is None for component in request.components)
        and request.job_type is JobType.PLAIN
        and not (request.is_shaped or request.has_image or request.required or request.communication is not None)
    )


@cache
def _graph(tasks: int, edges_per_task: float) -> TaskGraph:
    """Return a graph whose tasks need so little of a processor that only the number of processors can refuse a
    job."""
    rng = stream(tasks, "task graph", str(edges_per_task))
    return random_task_graph(tasks, rng, mcr=1.0, edges_per_task=edges_per_task)


def of_tasks(rng: random.Random, request: Request) -> Request:
    """Return the request as one of tasks: at most one for each processor, and between half and all of up to twice the
    largest graph."""
    processors = request.processors
    fitting = [each for each in GRAPHS if each[0] <= processors < 2 * each[0]]
    graph = _graph(*rng.choice(fitting or [max(GRAPHS)]))
    component = msgspec.structs.replace(request.components[0], processors=len(graph.names))
    return msgspec.structs.replace(
        request, components=(component,), tasks=graph, flexible=Flexibility(), policy=rng.choice(POLICIES)
    )


def _with_spawns(rng: random.Random, grid: Grid, arrival: Arrival, fits_into: float) -> Arrival:
    request = of_tasks(rng, arrival.request)
    graph = request.tasks
    assert graph is not None
    open_sites = (site for site in grid.sites if site.own_account or not arrival.guest)
    room = sum(int(site.processors * site.quota * fits_into) for site in open_sites) - request.processors
    spawns = []
    for number in range(rng.randint(0, SPAWNS_MAX)):
        names = [f"s{number}-{index}" for index in range(min(room, rng.randint(1, SPAWNED_TASKS_MAX)))]
        partners = [*graph.names[:3], "nobody"] if rng.random() < 0.05 else graph.names
        edges = [(name, rng.choice(partners), rng.uniform(1.0, 10.0)) for name in names if rng.random() < 0.8]
        room -= len(names)
        if names:
            tasks = SpawnedTasks.of({name: rng.uniform(1.0, 3.0) for name in names}, edges)
            spawns.append((rng.uniform(0.0, arrival.execution_s * rng.choice((0.2, 1.2))), tasks))
    return arrival._replace(request=request, spawns=tuple(spawns))


class SpawnPromises:
    """Follows one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._tasks: dict[JobId, set[str]] = {}  # the tasks to run, by job
        self._holds: dict[Token, StartComponent] = {}  # components that hold tasks
        self._begun: dict[JobId, dict[Token, int]] = {}  # by job, its components that began, with their runs
        self._done: set[Token] = set()

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if isinstance(event, JobSubmitted) and event.request.tasks is not None:
            self._tasks[event.job] = set(event.request.tasks.names)
        elif isinstance(event, ComponentEnded) and event.outcome is Outcome.DONE:
            self._done.add(event.token)
        for entry in turn.entries:
            if isinstance(entry, ElementMade) and entry.array in self._tasks:
                self._tasks[entry.job] = set(self._tasks[entry.array])
            elif isinstance(entry, TasksSpawned):
                self._spawned(entry)
            elif isinstance(entry, StartComponent) and entry.tasks:
                self._holds[entry.token] = entry
            elif isinstance(entry, ReleaseBarrier) and entry.job in self._tasks:
                self._begin(entry)
            elif isinstance(entry, JobEnded) and entry.job in self._tasks:
                self._ended(entry)
        if isinstance(event, SpawnAsked):
            self._is_answered(event, turn)

    def _is_answered(self, event: SpawnAsked, turn: Turn) -> None:
        answers = [each for each in turn.facts if isinstance(each, TasksSpawned) and each.tasks == event.tasks.names]
        if len(answers) != 1 and (answers or event.job in self._ledger.jobs):
            self._fail(SPAWNED_ONCE, f"job {event.job} asks for {event.tasks.names}, and hears {answers}")

    def _spawned(self, fact: TasksSpawned) -> None:
        """Check that spawned tasks are new if they have places; tasks without places never began, or never
        existed."""
        known, names = self._tasks[fact.job], set(fact.tasks)
        if not fact.reason:
            if known & names or sum(size for _, size in fact.places) != len(names):
                self._fail(SPAWNED_ONCE, f"job {fact.job} gets {fact.tasks} on {fact.places}")
            self._tasks[fact.job] = known | names
        elif names <= known:
            began = [task for token in self._begun.get(fact.job, ()) for task in self._holds[token].tasks]
            if names & set(began):
                self._fail(SPAWNED_ONCE, f"{fact.tasks} of job {fact.job} began, and are withdrawn")
            self._tasks[fact.job] = known - names

    def _begin(self, command: ReleaseBarrier) -> None:
        begun = self._begun.setdefault(command.job, {})
        begun |= {token: self._holds[token].run for token in command.tokens}
        run = max(begun.values())
        twice = self._counted(command.job, run) - Counter(dict.fromkeys(self._tasks[command.job], 1))
        if twice:
            self._fail(SPAWNED_ONCE, f"job {command.job} runs {sorted(twice)} twice in run {run}, or not at all")

    def _counted(self, job: JobId, run: int) -> Counter[str]:
        """Return how many components of the run hold each task."""
        begun = self._begun.get(job, {})
        return Counter(task for token in begun if begun[token] == run for task in self._holds[token].tasks)

    def _ended(self, fact: JobEnded) -> None:
        begun = self._begun.pop(fact.job, {})
        if fact.outcome is not JobOutcome.DONE or fact.job in self._ledger.arrays or not begun:
            return
        last = max(begun.values())
        ran = [
            task
            for token in begun
            if begun[token] == last and token in self._done
            for task in self._holds[token].tasks
        ]
        if Counter(ran) != Counter(dict.fromkeys(self._tasks[fact.job], 1)):
            missing = sorted(self._tasks[fact.job].symmetric_difference(ran))
            self._fail(SPAWNED_ONCE, f"job {fact.job} is done, and of its tasks {missing} are not, or done twice")
