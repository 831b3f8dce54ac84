"""``koala job``: show one job, explain its state, wait for it, hold, change or cancel it. Its output: ``logs``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from koala.cli.connection import JOB_ID, complete_job, reason_option, with_client
from koala.cli.errors import UserError, for_user, say
from koala.cli.job.fetch import fetch
from koala.cli.job.logs import logs
from koala.cli.job.spawn import spawn
from koala.cli.job.views import print_explanation, print_job
from koala.cli.job.waiting import end_with, watch_job
from koala.cli.terminal.output import print_json
from koala.cli.terminal.refusals import Verdicts
from koala.cli.terminal.words import clean, clock_at, element_called, shown_state
from koala.words.expectations import with_its_time

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import Explanation, JobSummary


class JobGroup(click.Group):
    """Suggests a command if a job's number is given without one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0].isdecimal():
            raise click.UsageError(
                f"What about job {args[0]}? To see its state, write koala job show {args[0]}.", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(cls=JobGroup)
def job() -> None:
    """Look at one job, wait for it, hold, change or cancel it."""


job.add_command(logs)
job.add_command(fetch)
job.add_command(spawn)


@job.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def show(client: Client, /, job_id: int, as_json: bool) -> None:
    """Show a job: where its components are, when each was claimed, started and ended."""
    found = client.job(job_id)
    if as_json:
        print_json(found)
    else:
        print_job(found, time.time(), Verdicts(client).of([found]).get(job_id, ""))


@job.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def explain(client: Client, /, job_id: int, as_json: bool) -> None:
    """Explain why a job is where it is: what each site lacked, what would cure it, and its story."""
    found = client.explain(job_id)
    if as_json:
        print_json(found)
    else:
        print_explanation(found, time.time())
        _print_failed_element(client, found)


def _print_failed_element(client: Client, array: Explanation) -> None:
    """Print why one of the elements of a failed array failed."""
    if array.state != "failed" or client.job(array.job).elements is None:
        return
    for each in client.jobs(array=array.job, states=["failed"], limit=1).items:
        name = f"{array.job}_{each.array_index}"
        say(f"Element {name} failed: {clean(each.reason)}; see koala job explain {name}.")


@job.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True, shell_complete=complete_job)
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def cancel(ctx: click.Context, client: Client, /, job_ids: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Cancel jobs. One that has ended already stays as it is."""
    from koala.client import ENDED_STATES

    def words(found: JobSummary) -> str:
        past = found.state in ENDED_STATES and found.state != "cancelled"
        return f"had ended already: {found.state}" if past else "is cancelled"

    _each_job(ctx, job_ids, functools.partial(client.cancel, reason=reason), words, as_json=as_json)


def _each_job(
    ctx: click.Context,
    job_ids: Sequence[int],
    call: Callable[[int], JobSummary],
    told: Callable[[JobSummary], str],
    *,
    as_json: bool,
) -> None:
    """Call for each job and print the result; a failed call does not keep the others from being made."""
    from koala.client import ClientError

    code = 0
    answers = []
    for job_id in job_ids:
        try:
            found = call(job_id)
        except ClientError as error:
            problem = for_user(error, error.for_user())
            problem.show()
            code = max(code, problem.exit_code)
            continue
        answers.append(found)
        if not as_json:
            # For an element that is still to be made the answer is its array, which goes on.
            which = f"Job {found.id}" if found.id == job_id else f"Element {element_called(found, job_id)}"
            say(f"{which} ({clean(found.name)}) {told(found)}.")
    if as_json:
        print_json(answers)
    ctx.exit(code)


@job.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True, shell_complete=complete_job)
@click.option("--hold", is_flag=True, help="Hold them there, until they are released.")
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def requeue(
    ctx: click.Context, client: Client, /, job_ids: tuple[int, ...], hold: bool, reason: str, as_json: bool
) -> None:
    """Put jobs back into their placement queue.

    A job's places are given back, and what runs of it is ended, without counting as a failure; it is started again
    later. A job with a checkpoint is asked to save first, within its time of grace. A job in quarantine, after an
    error inside Koala, is put back by an operator once the cause is fixed, for example by an upgrade.
    """

    from koala.client import ClientError

    def words(found: JobSummary) -> str:
        if found.state != "unwinding":
            return f"is {shown_state(found)} again"
        try:
            return f"goes back: {clean(client.explain(found.id).meaning)}"
        except ClientError:  # it is put back anyway, and so are the others
            return "goes back to its placement queue"

    _each_job(ctx, job_ids, functools.partial(client.requeue, hold=hold, reason=reason), words, as_json=as_json)


@job.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True, shell_complete=complete_job)
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def hold(ctx: click.Context, client: Client, /, job_ids: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Keep jobs that have not started from being tried, until they are released."""
    _each_job(
        ctx,
        job_ids,
        functools.partial(client.hold, reason=reason),
        lambda found: f"is {found.state}",
        as_json=as_json,
    )


@job.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True, shell_complete=complete_job)
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def release(ctx: click.Context, client: Client, /, job_ids: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Release held jobs. One that waits for other jobs, or for its time, goes on waiting for these."""

    def words(found: JobSummary) -> str:
        if found.state != "held":
            return f"is {shown_state(found)}"
        why = clean(with_its_time(found.reason, found.begins_at, clock_at(None)))
        return f"is still held: {why}; release ends only a hold (koala job hold)"

    _each_job(ctx, job_ids, functools.partial(client.release, reason=reason), words, as_json=as_json)


@job.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True, shell_complete=complete_job)
@click.option("--walltime", metavar="TIME", help="How long it may run: seconds, 15m, 2h or HH:MM:SS.")
@click.option("--priority", type=click.Choice(["high", "low"]), help="Its priority.")
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def change(
    ctx: click.Context,
    client: Client,
    /,
    job_ids: tuple[int, ...],
    walltime: str | None,
    priority: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """Change the walltime or the priority of jobs that wait for a place."""
    if walltime is None and priority is None:
        raise UserError("there is nothing to change; write --walltime TIME or --priority high or low")
    walltime_s = None if walltime is None else _walltime_s(walltime)

    def call(job_id: int) -> JobSummary:
        return client.change(job_id, walltime_s=walltime_s, priority=priority, reason=reason)

    _each_job(ctx, job_ids, call, lambda found: f"is changed, and {shown_state(found)}", as_json=as_json)


def _walltime_s(text: str) -> float:
    from koala.descriptions.fields import DURATION_ADVICE, duration_problem, duration_s

    seconds = duration_s(text)
    problem = None if seconds is None else duration_problem(seconds)
    if seconds is None or problem is not None:
        message, advice = problem or (f"{clean(text)} is not a duration", DURATION_ADVICE)
        raise UserError(f"--walltime: {message}; {advice}")
    return seconds


@job.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def wait(ctx: click.Context, client: Client, /, job_id: int, timeout_s: float | None, as_json: bool) -> None:
    """Wait until a job has ended.

    The exit code is that of its application: 0 when the job is done, its own code when it failed with one, 1
    otherwise, also when the time is up first.
    """
    end_with(ctx, watch_job(ctx, client, job_id, timeout_s, as_json=as_json), as_json)
