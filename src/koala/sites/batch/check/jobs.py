"""The steps of a check that deal with jobs: dry submissions, available processors, reservations, and one tiny job.

They use the batch system's own builders and parsers, so a step that passes proves what Koala does later.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.nodes import NodePool, gpus_text, memory_text, total_of
from koala.model.request import Application
from koala.sites.batch.check.steps import (
    CheckContext,
    Reply,
    StepResult,
    UnansweredError,
    failed,
    passed,
    skipped,
    warned,
)
from koala.sites.batch.system import BatchJob, BatchOutputError, BatchState, BatchSubmission, WantedReservation
from koala.sites.shell_script import assign, shell_file

JOB_LIMIT_S = 300.0
# The trial reservation begins this far ahead, so that it blocks nobody before it is cancelled.
RESERVATION_AHEAD_S = 86_400.0
RESERVATION_LENGTH_S = 60.0
# How long a file written by a node may take to appear at the login host: clients of network file systems cache
# directories for a while.
FILE_GRACE_S = 10.0
POLL_EVERY_S = 0.5

CHECK_SCRIPT, _LOG, _WORD, _SEEN, _DONE = "script", "log", "word", "seen", "done"
_SPOKEN = "koala check ran on"


def _job_script(context: CheckContext) -> str:
    """Return a script in which every node prints its name and what it reads in the work directory; the last word is
    DONE."""
    functions, values = context.batch.on_node(), assign(koala_check_home=context.home)
    return f"#!/bin/sh\n{functions}{values}{shell_file(__package__, 'job.sh')}"


def tiny_job(context: CheckContext) -> BatchSubmission:
    """Return the submission of a script in the directory of the check."""
    launch = Launch(
        token=context.token,
        job=0,
        processors=context.processors_tried,
        application=Application(executable="true"),
        walltime_s=JOB_LIMIT_S,
    )
    return BatchSubmission(launch=launch, home=context.home, script=CHECK_SCRIPT, log=_LOG, limit_s=JOB_LIMIT_S)


@contextlib.asynccontextmanager
async def check_directory(context: CheckContext, files: Mapping[str, str]) -> AsyncIterator[None]:
    """Create the directory of the check with these files, and remove it afterwards."""
    home = shlex.quote(context.home)
    written = "".join(f" && printf %s {shlex.quote(text)} >{name}" for name, text in files.items())
    made = await context.ask(f"mkdir {home} && cd {home}{written}\n")
    if made.code != 0:
        raise UnansweredError(f"{context.home}: {made.reason}")
    try:
        yield
    finally:
        with contextlib.suppress(UnansweredError):
            await context.ask(f"rm -rf -- {home}\n")


def _directory(context: CheckContext) -> contextlib.AbstractAsyncContextManager[None]:
    return check_directory(context, {_WORD: f"{context.nonce}\n", CHECK_SCRIPT: _job_script(context)})


async def _dry(context: CheckContext, settings: BatchSettings, options: tuple[str, ...]) -> Reply:
    """Have the batch system check a submission without accepting it."""
    system = context.make_system(
        msgspec.structs.replace(settings, submit_options=(*settings.submit_options, *options))
    )
    return await context.ask(system.submit(tiny_job(context)))


class DrySteps:
    """The steps that submit nothing. They use the options that make a batch system only check a submission."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.options = options

    async def account(self, context: CheckContext) -> StepResult:
        """Check that the account is accepted: a submission refused with the account must be accepted without it."""
        account = context.settings.account
        assert account is not None, "the step is for sites with an account"
        async with _directory(context):
            reply = await _dry(context, context.settings, self.options)
            if reply.code == 0:
                return passed(f"{account} is accepted")
            without = await _dry(context, msgspec.structs.replace(context.settings, account=None), self.options)
        if without.code == 0:
            return failed(f"{account} is refused: {reply.reason}", "correct 'account: ...', or leave it out")
        return skipped(f"{account} was not reached: submissions are refused without it too")

    async def submission(self, context: CheckContext) -> StepResult:
        """Check that the batch system would accept one of our jobs."""
        async with _directory(context):
            reply = await _dry(context, context.settings, self.options)
        if reply.code == 0:
            return passed(f"a job of {_processors(context.processors_tried)} would be taken")
        return failed(
            f"a job of {_processors(context.processors_tried)} is refused: {reply.reason}",
            "correct what it names: queue, account, parallel_environment or submit_options in the grid file",
        )


async def processors(context: CheckContext) -> StepResult:
    """Check that the described processors exist, and count those that are available now."""
    reply = await context.ask(context.batch.listing())
    described, total = context.site.processors, context.queue_processors
    if reply.code != 0:
        return failed(f"the queue cannot be listed: {reply.reason}", f"find out with {context.checks.lists} there")
    try:
        listing = context.batch.parse_listing(reply.printed)
    except BatchOutputError as error:
        return failed(f"what it lists makes no sense here: {error}", "tell us, with the version of the batch system")
    context.nodes = listing.nodes
    if total is not None and described > total:
        return failed(
            f"{described} are described, but the queue has {total}", f"write 'processors: {total}' or fewer"
        )
    if listing.processors < described:
        return warned(
            f"{described} are described, {listing.processors} can be used now: nodes are down or drained, they lack "
            "what submit_options ask for, or a limit applies",
            "nothing, if they come back; else correct 'submit_options: ...', or describe fewer",
        )
    others = f", {listing.others} of them taken by others" if listing.others else ""
    return passed(f"{described} described; {listing.processors} can be used{others}")


async def nodes(context: CheckContext) -> StepResult | None:
    """Report memory, GPUs and features of the nodes, and how much is idle; no result if the listing shows no
    nodes."""
    if not context.nodes:
        return None
    whole, free = (total_of(pool(context.nodes)) for pool in (NodePool.whole, NodePool.free))
    parts = [
        f"{gpus_text(count, kind)}, {free.gpus.get(kind, 0)} idle" for kind, count in whole.gpus.items() if count
    ] or ["no GPUs"]
    if not all(each.whole.counts_memory for each in context.nodes):
        there = "memory" if whole.memory_bytes is None else f"{memory_text(whole.memory_bytes)} of memory"
        parts.append(f"{there}, which jobs do not share out")
    elif whole.memory_bytes is not None and free.memory_bytes is not None:
        parts.append(f"{memory_text(whole.memory_bytes)} of memory, {memory_text(free.memory_bytes)} idle")
    else:
        parts.append("no memory is told, so that tasks that ask for memory do not go there")
    count = sum(each.count for each in context.nodes)
    return passed(f"{count} {'node' if count == 1 else 'nodes'}: {'; '.join(parts)}")


async def reservation(context: CheckContext) -> StepResult:
    """Check that a reservation for tomorrow is granted, and cancel it at once."""
    name = f"koala-{context.token}"
    wanted = WantedReservation(
        name=name,
        processors=context.processors_tried,
        begin_s=context.clock() + RESERVATION_AHEAD_S,
        length_s=RESERVATION_LENGTH_S,
    )
    reply = await context.ask(context.batch.reserve(wanted))
    returned = await context.ask(context.batch.unreserve(name))
    advice = "let the operator allow you to reserve, or write 'claims: barrier'"
    if reply.code != 0:
        return failed(f"it is refused: {reply.reason}", advice)
    try:
        context.batch.parse_reserved(reply.printed)
    except BatchOutputError as error:
        return failed(f"what is granted makes no sense here: {error}", advice)
    if returned.code != 0:
        return failed(f"{name} was granted but could not be given back: {returned.reason}", "delete it by hand")
    return passed("one for tomorrow was granted and given back")


async def job(context: CheckContext) -> StepResult:
    """Check a real tiny job: it starts, its nodes see the work directory, its output can be read, and it ends."""
    async with _directory(context):
        try:
            return await _tried(context)
        finally:
            # Cancel by name: an interrupted check may not have received the job's number.
            with contextlib.suppress(UnansweredError):
                await context.ask(context.batch.cancel(context.token, ()))


async def _tried(context: CheckContext) -> StepResult:
    asked_at = context.clock()
    reply = await context.ask(context.batch.submit(tiny_job(context)))
    if reply.code != 0:
        return failed(f"it is refused: {reply.reason}", "correct what it names in the grid file")
    try:
        identifier = context.batch.parse_submitted(reply.printed)
    except BatchOutputError as error:
        return failed(f"its submission is answered strangely: {error}", "see what sbatch or qsub print there")
    ran = await _until_done(context, identifier, asked_at)
    return ran if isinstance(ran, StepResult) else await _judged(context, identifier, ran)


async def _until_done(context: CheckContext, identifier: str, asked_at: float) -> StepResult | float:
    """Return the seconds from the submission to the end of its script, or why it did not end."""
    seen: BatchJob | None = None
    over_at: float | None = None
    while True:
        if await _is_done(context):
            return context.clock() - asked_at
        now = context.clock()
        jobs = await _listed(context)
        mine = next((each for each in jobs or () if each.id == identifier), None)
        gone = jobs is not None and mine is None and seen is not None
        seen = mine or seen
        if over_at is None and (gone or (mine is not None and mine.state is BatchState.OVER)):
            over_at = now
        if over_at is not None and now - over_at > FILE_GRACE_S:
            return await _not_seen(context, identifier, seen)
        if now - asked_at > context.patience_s:
            return _late(context, identifier, seen)
        await context.sleep(POLL_EVERY_S)


def _late(context: CheckContext, identifier: str, job: BatchJob | None) -> StepResult:
    """Explain a job that has not ended in time. A job that only waits for other jobs is no fault of the site."""
    why = "it is not listed" if job is None else f"it is {job.state} ({job.reason or 'it does not say why'})"
    if job is not None and job.state is BatchState.PENDING and job.end is None:
        return warned(
            f"job {identifier} had to wait for more than {context.patience_s:.0f} s: {why}; it was cancelled",
            "check again when processors are idle, or with a longer --patience",
        )
    return failed(
        f"job {identifier} did not end within {context.patience_s:.0f} s: {why}; it was cancelled",
        "find out why with squeue or qstat there, or check again with a longer --patience",
    )


async def _is_done(context: CheckContext) -> bool:
    reply = await context.ask(f"if [ -e {shlex.quote(f'{context.home}/{_DONE}')} ]; then echo done; fi\n")
    return reply.printed.strip() == "done"


async def _not_seen(context: CheckContext, identifier: str, job: BatchJob | None) -> StepResult:
    """Explain a job that ended without a trace of its script: it failed, or its nodes see another directory."""
    end = None if job is None else job.end
    ending = "" if end is None else f" ({end.reason or end.kind}, exit code {end.exit_code})"
    log = await context.ask(f"cat {shlex.quote(f'{context.home}/{_LOG}')}\n")
    said = " ".join(log.printed.split())[:200]
    if log.code == 0 and said:
        return failed(f"job {identifier} ended{ending} and said: {said}", "mend what it says, and check again")
    return failed(
        f"job {identifier} ended{ending}, but nothing of it is seen in {context.work}",
        "name a work_directory that the nodes share with the login host",
    )


async def _judged(context: CheckContext, identifier: str, took_s: float) -> StepResult:
    home = shlex.quote(context.home)
    reply = await context.ask(f"cd {home} && cat {_SEEN} && cat {_LOG} >&2\n")
    blind, nodes = [], []
    for line in reply.printed.splitlines():
        node, _, rest = line.partition(" ")
        nodes.append(node)
        if not rest.endswith(f" {context.nonce}"):
            blind.append(node)
    if reply.code != 0 or not nodes:
        return failed(f"job {identifier} ran, but what it left cannot be read: {reply.reason}", "check again")
    if blind:
        return failed(
            f"the node {', '.join(blind)} does not see {context.work}, or cannot be reached by the job",
            "name a work_directory that all nodes share, and let jobs start processes on all their nodes",
        )
    if _SPOKEN not in reply.complaint:
        return failed(f"what job {identifier} printed is not in its log", "take out submit_options about output")
    return passed(f"job {identifier} ran on {', '.join(nodes)}, and was over {took_s:.1f} s after its submission")


async def _listed(context: CheckContext) -> Sequence[BatchJob] | None:
    """Return our jobs; None if the listing cannot be parsed."""
    reply = await context.ask(context.batch.listing())
    try:
        return context.batch.parse_listing(reply.printed).jobs if reply.code == 0 else None
    except BatchOutputError:
        return None


def _processors(count: int) -> str:
    return "1 processor" if count == 1 else f"{count} processors"
