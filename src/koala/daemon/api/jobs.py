"""Routes about jobs: submit, list, look at, wait for, cancel."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Query, Request, Response
from fastapi.openapi.models import Example

from koala.core.life.states import JobState
from koala.daemon.api.callers import Who, caller_of
from koala.daemon.api.errors import declared
from koala.daemon.api.listeners import listener_of
from koala.daemon.api.parameters import Cursor, JobPath, Limit, Moment, Reason, The, routes_about
from koala.model.api import (
    OUTPUT_BYTES_MAX,
    PAGE_ITEMS_DEFAULT,
    WAIT_S_MAX,
    DryRun,
    DryRunGraph,
    Explanation,
    JobDetail,
    JobSummary,
    Output,
    OutputInfo,
    Page,
    Spawned,
    Submitted,
    SubmittedGraph,
)
from koala.model.api.questions import JobChange, SpawnWish, Submission
from koala.model.request import COMPONENTS_MAX
from koala.store import NUMBER_MAX, ChosenJobs

router = routes_about("jobs")

# Each example is a valid request.
EXAMPLE_JOB = """\
name: pair
application:
  executable: /bin/hostname
components:
  - processors: 2
  - processors: 2
"""
SUBMISSIONS: dict[str, Example] = {
    "yaml": {
        "summary": "A job in YAML",
        "value": {"description": EXAMPLE_JOB, "source": "pair.yaml", "client_token": "3f1c9f0e-pair"},
    },
    "script": {
        "summary": "A Slurm script",
        "value": {"description": "#!/bin/sh\n#SBATCH --ntasks=4\nhostname\n", "source": "job.sbatch"},
    },
}

CHANGES: dict[str, Example] = {
    "walltime": {"summary": "Half an hour", "value": {"walltime_s": 1800}},
    "priority": {"summary": "High priority", "value": {"priority": "high"}},
}

SPAWNS: dict[str, Example] = {
    "yaml": {
        "summary": "A task that exchanges with one of the job",
        "value": {"description": "tasks: {encode-2: 2.0}\nedges: [[encode-2, mix, 5.0]]\n", "source": "spawn.yaml"},
    },
}

EXAMPLE_GRAPH = """\
jobs:
  make: {processors: 1, application: {executable: /bin/hostname}}
  solve: {processors: 4, application: {executable: /bin/hostname}, after: {done: [make]}}
"""
GRAPHS: dict[str, Example] = {
    "yaml": {
        "summary": "Two jobs, one after the other",
        "value": {"description": EXAMPLE_GRAPH, "source": "graph.yaml", "client_token": "3f1c9f0e-graph"},
    },
}

GraphWish = Annotated[Submission, Body(openapi_examples=GRAPHS)]
Wish = Annotated[Submission, Body(openapi_examples=SUBMISSIONS)]


@router.post(
    "/jobs",
    status_code=201,
    summary="Submit a job",
    responses={**declared(409), 200: {"model": Submitted, "description": "The client token had this job already."}},
)
async def submit_job(who: Who, service: The, wish: Wish, response: Response) -> Submitted:
    """Put a job on record. With 201 it is durable. The same client token with the same job gives that job again."""
    submitted = await service.submit(who, wish)
    if not submitted.new:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    return submitted


@router.post(
    "/graphs",
    status_code=201,
    summary="Submit several jobs that wait for each other",
    responses={**declared(409), 200: {"model": SubmittedGraph, "description": "The client token had these already."}},
)
async def submit_graph(who: Who, service: The, wish: GraphWish, response: Response) -> SubmittedGraph:
    """Put all jobs of a graph on record, or none. With 201 they are durable, in an order in which none waits for a
    later one. The same client token with the same graph gives these jobs again."""
    submitted = await service.submit_graph(who, wish)
    if not submitted.new:
        response.status_code = 200
    return submitted


@router.post("/graph-dry-runs", summary="Where several jobs would go now", responses=declared())
async def dry_run_graph(who: Who, service: The, wish: GraphWish) -> DryRunGraph:
    """Find places for each job of a graph as if it were alone and nothing kept it back, or why there are none.
    Changes nothing."""
    return await service.dry_run_graph(who, wish)


@router.post("/dry-runs", summary="Where a job would go now", responses=declared())
async def dry_run(who: Who, service: The, wish: Wish) -> DryRun:
    """Find places for every component of the job as if it were alone in the queue, or why there are none. Changes
    nothing."""
    return await service.dry_run(who, wish)


@router.get("/jobs", summary="List jobs", responses=declared())
async def list_jobs(
    who: Who,
    service: The,
    state: Annotated[
        list[JobState] | None, Query(max_length=len(JobState), description="Only jobs in these states.")
    ] = None,
    owner: Annotated[str | None, Query(min_length=1, max_length=255, description="Only jobs of this user.")] = None,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
    array: Annotated[
        int | None, Query(ge=1, le=NUMBER_MAX, description="The elements of this array, instead of arrays as one.")
    ] = None,
    name: Annotated[
        str, Query(max_length=256, description="Only jobs of this name; with a * at its end, of names that begin so.")
    ] = "",
    from_at: Moment | None = None,
    to_at: Moment | None = None,
) -> Page[JobSummary]:
    """List jobs, the newest first, ended ones included; an array is one job. ``from_at`` and ``to_at`` limit the list
    to jobs submitted at or after the first and before the second."""
    states = frozenset(str(each) for each in state or ())
    which = ChosenJobs(name, from_at, to_at)
    return await service.jobs(who, states=states, owner=owner, limit=limit, cursor=cursor, array=array, which=which)


@router.get("/jobs/{job}", summary="One job", responses=declared())
async def get_job(who: Who, service: The, job: JobPath) -> JobDetail:
    """Return everything about a job but its story."""
    return await service.job(who, job)


@router.get("/jobs/{job}/explanation", summary="Why a job is in its state", responses=declared())
async def explain_job(who: Who, service: The, job: JobPath) -> Explanation:
    """Return the job's state, what each site lacked at the last try and what would cure it, and its story."""
    return await service.explain(who, job)


@router.get("/jobs/{job}/outputs", summary="What a job made", responses=declared())
async def list_outputs(
    who: Who,
    service: The,
    job: JobPath,
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="Only of jobs with a higher number.")] = 0,
) -> list[OutputInfo]:
    """List the registered outputs of the job, with the names under which their bytes are available. For an array
    these are the outputs of its elements: repeat with the last job's number in `after` until there are none."""
    return await service.outputs_of(who, job, after=after)


@router.get("/jobs/{job}/wait", summary="Wait for a job's end", responses=declared())
async def wait_for_job(
    request: Request,
    who: Who,
    service: The,
    job: JobPath,
    timeout_s: Annotated[float, Query(ge=0, le=WAIT_S_MAX, allow_inf_nan=False)] = WAIT_S_MAX,
) -> JobSummary:
    """Return the job when it has ended, or as it is after the timeout: ask again while `ended_at` is null."""
    found = await listener_of(request).traffic.unless_stopped(service.wait(who, job, timeout_s))
    caller_of(request)  # a token that was revoked meanwhile no longer sees anything
    return found


@router.post("/jobs/{job}/cancel", summary="Cancel a job", responses=declared(409))
async def cancel_job(who: Who, service: The, job: JobPath, reason: Reason = "") -> JobSummary:
    """Request the job's end. Cancelling a job that has ended changes nothing."""
    return await service.changes.cancel(who, job, reason=reason)


@router.post("/jobs/{job}/hold", summary="Hold a job", responses=declared(409))
async def hold_job(who: Who, service: The, job: JobPath, reason: Reason = "") -> JobSummary:
    """Keep the job from being tried until it is released; one that has places and has not started gives them back."""
    return await service.changes.hold(who, job, reason=reason)


@router.post("/jobs/{job}/release", summary="Let a held job go", responses=declared(409))
async def release_job(who: Who, service: The, job: JobPath, reason: Reason = "") -> JobSummary:
    """Try the job again, once everything that it waits for has come. One that is not held stays as it is."""
    return await service.changes.unhold(who, job, reason=reason)


@router.post("/jobs/{job}/change", summary="Change a waiting job", responses=declared(409))
async def change_job(
    who: Who,
    service: The,
    job: JobPath,
    change: Annotated[JobChange, Body(openapi_examples=CHANGES)],
    reason: Reason = "",
) -> JobSummary:
    """Change the walltime or the priority of a job that waits for a place."""
    return await service.changes.change(who, job, change, reason=reason)


@router.post("/jobs/{job}/spawn", summary="More tasks for a running job of tasks", responses=declared(409))
async def spawn_tasks(
    who: Who,
    service: The,
    job: JobPath,
    wish: Annotated[SpawnWish, Body(openapi_examples=SPAWNS)],
) -> Spawned:
    """Place tasks near those that they exchange with, all at once or none. The tasks that the job has stay where they
    are. Repeating the same tasks changes nothing."""
    return await service.changes.spawn(who, job, await service.spawned_tasks(who, job, wish))


@router.post("/jobs/{job}/requeue", summary="Put a job back into its queue", responses=declared(409))
async def requeue_job(
    who: Who,
    service: The,
    job: JobPath,
    hold: Annotated[bool, Query(description="Hold it there.")] = False,
    reason: Reason = "",
) -> JobSummary:
    """Give back the job's places, end what runs of it, and return it to its placement queue. Only a caller who may
    `operate` may put back a job that is `quarantined`."""
    return await service.changes.requeue(who, job, hold=hold, reason=reason)


@router.get("/jobs/{job}/output", summary="What a component wrote", responses=declared(409))
async def get_output(
    who: Who,
    service: The,
    job: JobPath,
    part: Annotated[int, Query(ge=0, lt=COMPONENTS_MAX, description="Which component.")] = 0,
    run: Annotated[int | None, Query(ge=1, le=NUMBER_MAX, description="Which run; the last one by default.")] = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    offset: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="The first byte wanted.")] = 0,
    limit: Annotated[int, Query(ge=1, le=OUTPUT_BYTES_MAX, description="How many bytes at most.")] = 65_536,
) -> Output:
    """Return a piece of a component's output as text; continue at `next_offset` until it is `complete`."""
    return await service.output(who, job, part=part, run=run, stream=stream, offset=offset, limit=limit)
