"""Outputs in a storm: this module draws what jobs produce and what others read, and checks the promises about it.

The checks keep their own record of the components that succeeded at each site, and of the collected files.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from koala.core import Scheduler
from koala.model.dependency import Condition, Dependency
from koala.model.facts import JobEnded, OutputRegistered, Turn
from koala.model.messages import AnyEvent, JobOutcome, OutputsCollected, StartComponent, Token
from koala.model.outputs import JobOutput, job_of_output, output_name
from koala.model.request import InputFile, JobId, Request, SiteName
from koala.simulator.torture.order import numbers_of
from koala.simulator.workloads.workload import Arrival

REGISTERED = "outputs of a done job are registered where they were made"
THERE = "nothing is registered that is not there"
_SIZES_BYTES = (0, 1_000_000, 100_000_000, 400_000_000)


def with_outputs(
    rng: random.Random, arrivals: tuple[Arrival, ...], sites: tuple[SiteName, ...]
) -> tuple[Arrival, ...]:
    """In some storms let some jobs produce outputs, and later jobs wait for them and read these outputs."""
    if rng.random() < 0.6:
        return arrivals
    made: dict[JobId, tuple[JobOutput, ...]] = {}
    found = []
    for numbers, arrival in zip(numbers_of(arrivals), arrivals, strict=True):
        request = arrival.request
        if rng.random() < 0.5:
            outputs = tuple(
                JobOutput(
                    path=f"out/{index}",
                    size_bytes=rng.choice(_SIZES_BYTES),
                    to=rng.choice(sites) if rng.random() < 0.2 else None,
                )
                for index in range(rng.randint(1, 3))
            )
            request = _with(request, outputs=outputs)
            if request.array is None:
                made[numbers[0]] = outputs
        earlier = [job for job in made if job != numbers[0]]
        if earlier and rng.random() < 0.4:
            request = _reading(request, rng.choice(earlier), made)
        found.append(arrival._replace(request=request))
    return tuple(found)


def _with(request: Request, **changes: object) -> Request:
    components = tuple(msgspec.structs.replace(each, **changes) for each in request.components)
    return msgspec.structs.replace(request, components=components)


def _reading(request: Request, job: JobId, made: dict[JobId, tuple[JobOutput, ...]]) -> Request:
    """Return the request of a job that waits for another, and reads its first output."""
    done = Dependency(job=job, condition=Condition.DONE)
    after = request.after if done in request.after else (*request.after, done)
    file = InputFile(name=output_name(job, 0, made[job][0].path))
    request = _with(request, input_files=(*request.components[0].input_files, file))
    return msgspec.structs.replace(request, after=after)


def renumbered_inputs(request: Request, number: dict[JobId, JobId]) -> Request:
    """Return the request if jobs have the numbers that ``number`` gives; outputs of removed jobs are not read."""
    if not any(job_of_output(file.name) for component in request.components for file in component.input_files):
        return request
    components = []
    for component in request.components:
        files = []
        for file in component.input_files:
            job = job_of_output(file.name)
            if job is None:
                files.append(file)
            elif job in number:
                path = file.name.partition("/")[2].partition("/")[2]
                files.append(msgspec.structs.replace(file, name=output_name(number[job], 0, path)))
        components.append(msgspec.structs.replace(component, input_files=tuple(files)))
    return msgspec.structs.replace(request, components=tuple(components))


class OutputPromises:
    """Follows one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._started: dict[Token, tuple[JobId, int, SiteName]] = {}
        self._collected: dict[tuple[str, SiteName], int] = {}  # its size by file and site, as sites have reported it
        self._registered: dict[JobId, set[str]] = {}

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if isinstance(event, OutputsCollected):
            job, part, site = self._started[event.token]
            for output in event.outputs:
                for each in (site, *output.also_at):
                    self._collected[output_name(job, part, output.path), each] = output.size_bytes
        for entry in turn.entries:
            if isinstance(entry, StartComponent):
                self._started[entry.token] = entry.job, entry.part, entry.site
            elif isinstance(entry, OutputRegistered):
                self._is_there(entry)
                self._registered.setdefault(entry.job, set()).add(entry.file)
            elif isinstance(entry, JobEnded):
                self._all_registered(entry)

    def _is_there(self, fact: OutputRegistered) -> None:
        for site in fact.sites:
            if self._collected.get((fact.file, site)) != fact.output.size_bytes:
                self._fail(THERE, f"{fact.file} is registered at {site}, which has not told of it")
        known = self._ledger.sites.view.files.get(fact.file)
        holders = set() if known is None else {self._ledger.names[holder] for holder in known.holders}
        if holders != set(fact.sites):
            self._fail(THERE, f"{fact.file} is registered at {fact.sites}, and believed at {sorted(holders)}")

    def _all_registered(self, fact: JobEnded) -> None:
        job = self._ledger.ended.get(fact.job)
        if job is None or job.spec is not None or fact.outcome is not JobOutcome.DONE:
            return
        expected = {
            output_name(job.id, part, output.path)
            for part in range(len(fact.places))
            for output in job.request.outputs_of(part)
        }
        if expected != self._registered.pop(job.id, set()):
            self._fail(REGISTERED, f"job {job.id} is done, and not all of {sorted(expected)} are registered")
        files, index = self._ledger.sites.view.files, self._ledger.index
        for part, (site, _) in enumerate(fact.places):
            for output in job.request.outputs_of(part):
                if index[site] not in files[output_name(job.id, part, output.path)].holders:
                    self._fail(
                        REGISTERED, f"job {job.id} made {output.path} on {site}, and it is registered elsewhere"
                    )
