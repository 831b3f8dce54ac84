"""Steps of a check that deal in jobs: dry submissions, processors that can be had, reservations, and one tiny job.

All are made with the batch system's own builders and parsers, so that what passes here is what Koala does later.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncIterator, Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.check.steps import (
    Desk,
    Reply,
    Said,
    UnansweredError,
    failed,
    passed,
    skipped,
    warned,
)
from koala.sites.batch.system import BatchJob, BatchOutputError, BatchState, BatchSubmission

JOB_LIMIT_S = 300.0
# A reservation is tried so far ahead that it keeps nobody from anything before it is given back.
RESERVATION_AHEAD_S = 86_400.0
RESERVATION_LENGTH_S = 60.0
# How long what a node wrote may take to be seen at the login host: network file systems keep what they know of a
# directory for a while.
FILE_GRACE_S = 10.0
_LOOK_EVERY_S = 0.5

_SCRIPT, _LOG, _WORD, _SEEN, _DONE = "script", "log", "word", "seen", "done"
_SPOKEN = "koala check ran on"


def _job_script(desk: Desk) -> str:
    """Every node of the job says its name and what it reads in the work directory; the last word is DONE."""
    home, on_node = shlex.quote(desk.home), desk.batch.on_node()
    return (
        f"#!/bin/sh\n{on_node}"
        f'printf "%s %s\\n" "{_SPOKEN}" "$(uname -n)"\n'
        f"cd {home} || exit 9\n"
        "koala_nodes > nodes || exit 8\n"
        "while read -r node processors; do\n"
        f'  word=$(koala_on_node "$node" cat {home}/{_WORD} < /dev/null) || word=\n'
        f'  printf "%s %s %s\\n" "$node" "$processors" "$word" >> {_SEEN}.part\n'
        "done < nodes\n"
        f"mv {_SEEN}.part {_SEEN}\n"
        f"echo 0 > {_DONE}.part && mv {_DONE}.part {_DONE}\n"
    )


def _submission(desk: Desk) -> BatchSubmission:
    launch = Launch(
        token=desk.token,
        job=0,
        processors=desk.processors_tried,
        application=Application(executable="true"),
        walltime_s=JOB_LIMIT_S,
    )
    return BatchSubmission(launch=launch, home=desk.home, script=_SCRIPT, log=_LOG, limit_s=JOB_LIMIT_S)


@contextlib.asynccontextmanager
async def _directory(desk: Desk) -> AsyncIterator[None]:
    """The directory of the check, with the script of its job; it is gone afterwards."""
    home = shlex.quote(desk.home)
    marker = "KOALA_CHECK_END"
    made = await desk.ask(
        f"mkdir {home} && cd {home} || exit 1\nprintf '%s\\n' {desk.nonce} > {_WORD}\n"
        f"cat > {_SCRIPT} << '{marker}'\n{_job_script(desk)}{marker}\n"
    )
    if made.code != 0:
        raise UnansweredError(f"{desk.home}: {made.reason}")
    try:
        yield
    finally:
        with contextlib.suppress(UnansweredError):
            await desk.ask(f"rm -rf -- {home}\n")


async def _dry(desk: Desk, settings: BatchSettings, options: tuple[str, ...]) -> Reply:
    """A submission that the batch system looks at as at any other, and does not take."""
    system = desk.make_system(msgspec.structs.replace(settings, submit_options=(*settings.submit_options, *options)))
    return await desk.ask(system.submit(_submission(desk)))


class DrySteps:
    """The steps that submit nothing, with the options by which a batch system only looks."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.options = options

    async def account(self, desk: Desk) -> Said:
        """The account is accepted: a submission that is refused with it is taken without it."""
        account = desk.settings.account
        assert account is not None, "the step is for sites with an account"
        async with _directory(desk):
            reply = await _dry(desk, desk.settings, self.options)
            if reply.code == 0:
                return passed(f"{account} is accepted")
            without = await _dry(desk, msgspec.structs.replace(desk.settings, account=None), self.options)
        if without.code == 0:
            return failed(f"{account} is refused: {reply.reason}", "correct 'account: ...', or leave it out")
        return skipped(f"{account} was not reached: submissions are refused without it too")

    async def submission(self, desk: Desk) -> Said:
        """The batch system would take a job of ours."""
        async with _directory(desk):
            reply = await _dry(desk, desk.settings, self.options)
        if reply.code == 0:
            return passed(f"a job of {_processors(desk.processors_tried)} would be taken")
        return failed(
            f"a job of {_processors(desk.processors_tried)} is refused: {reply.reason}",
            "correct what it names: queue, account, parallel_environment or submit_options in the grid file",
        )


async def processors(desk: Desk) -> Said:
    """What is described is there, and how much of it can be had now."""
    reply = await desk.ask(desk.batch.listing())
    described, total = desk.site.processors, desk.queue_processors
    if reply.code != 0:
        return failed(f"the queue cannot be listed: {reply.reason}", "find out with squeue or qstat there")
    try:
        listing = desk.batch.parse_listing(reply.printed)
    except BatchOutputError as error:
        return failed(f"what it lists makes no sense here: {error}", "tell us, with the version of the batch system")
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


async def reservation(desk: Desk) -> Said:
    """A reservation for tomorrow is granted, and given back at once."""
    name = f"koala-{desk.token}"
    begin_s = desk.clock() + RESERVATION_AHEAD_S
    reply = await desk.ask(desk.batch.reserve(name, desk.processors_tried, begin_s, RESERVATION_LENGTH_S))
    returned = await desk.ask(desk.batch.unreserve(name))
    advice = "let the operator allow you to reserve, or write 'claims: barrier'"
    if reply.code != 0:
        return failed(f"it is refused: {reply.reason}", advice)
    try:
        desk.batch.parse_reserved(reply.printed)
    except BatchOutputError as error:
        return failed(f"what is granted makes no sense here: {error}", advice)
    if returned.code != 0:
        return failed(f"{name} was granted but could not be given back: {returned.reason}", "delete it by hand")
    return passed("one for tomorrow was granted and given back")


async def job(desk: Desk) -> Said:
    """A tiny job really runs: it starts, its nodes see the work directory, its output can be read, and it is gone."""
    async with _directory(desk):
        try:
            return await _tried(desk)
        finally:
            # By name, since who is interrupted may not have heard its number.
            with contextlib.suppress(UnansweredError):
                await desk.ask(desk.batch.cancel(desk.token, ()))


async def _tried(desk: Desk) -> Said:
    asked_at = desk.clock()
    reply = await desk.ask(desk.batch.submit(_submission(desk)))
    if reply.code != 0:
        return failed(f"it is refused: {reply.reason}", "correct what it names in the grid file")
    try:
        identifier = desk.batch.parse_submitted(reply.printed)
    except BatchOutputError as error:
        return failed(f"its submission is answered strangely: {error}", "see what sbatch or qsub print there")
    ran = await _until_done(desk, identifier, asked_at)
    return ran if isinstance(ran, Said) else await _judged(desk, identifier, ran)


async def _until_done(desk: Desk, identifier: str, asked_at: float) -> Said | float:
    """Seconds from the submission to the end of its script, or what kept it from ending."""
    seen: BatchJob | None = None
    over_at: float | None = None
    while True:
        if await _is_done(desk):
            return desk.clock() - asked_at
        now = desk.clock()
        jobs = await _listed(desk)
        mine = next((each for each in jobs or () if each.id == identifier), None)
        gone = jobs is not None and mine is None and seen is not None
        seen = mine or seen
        if over_at is None and (gone or (mine is not None and mine.state is BatchState.OVER)):
            over_at = now
        if over_at is not None and now - over_at > FILE_GRACE_S:
            return await _not_seen(desk, identifier, seen)
        if now - asked_at > desk.patience_s:
            return _late(desk, identifier, seen)
        await desk.sleep(_LOOK_EVERY_S)


def _late(desk: Desk, identifier: str, job: BatchJob | None) -> Said:
    """It has not ended in time; a job that only waits until others have gone is no fault of the site."""
    why = "it is not listed" if job is None else f"it is {job.state} ({job.reason or 'it does not say why'})"
    if job is not None and job.state is BatchState.PENDING and job.end is None:
        return warned(
            f"job {identifier} had to wait for more than {desk.patience_s:.0f} s: {why}; it was cancelled",
            "check again when processors are idle, or with a longer --patience",
        )
    return failed(
        f"job {identifier} did not end within {desk.patience_s:.0f} s: {why}; it was cancelled",
        "find out why with squeue or qstat there, or check again with a longer --patience",
    )


async def _is_done(desk: Desk) -> bool:
    look = await desk.ask(f"if [ -e {shlex.quote(f'{desk.home}/{_DONE}')} ]; then echo done; fi\n")
    return look.printed.strip() == "done"


async def _not_seen(desk: Desk, identifier: str, job: BatchJob | None) -> Said:
    """It ended, but its script left nothing here: either it failed, or its nodes see another directory."""
    end = None if job is None else job.end
    ending = "" if end is None else f" ({end.reason or end.kind}, exit code {end.exit_code})"
    log = await desk.ask(f"cat {shlex.quote(f'{desk.home}/{_LOG}')}\n")
    said = " ".join(log.printed.split())[:200]
    if log.code == 0 and said:
        return failed(f"job {identifier} ended{ending} and said: {said}", "mend what it says, and check again")
    return failed(
        f"job {identifier} ended{ending}, but nothing of it is seen in {desk.work}",
        "name a work_directory that the nodes share with the login host",
    )


async def _judged(desk: Desk, identifier: str, took_s: float) -> Said:
    home = shlex.quote(desk.home)
    reply = await desk.ask(f"cd {home} && cat {_SEEN} && cat {_LOG} >&2\n")
    blind, nodes = [], []
    for line in reply.printed.splitlines():
        node, _, rest = line.partition(" ")
        nodes.append(node)
        if not rest.endswith(f" {desk.nonce}"):
            blind.append(node)
    if reply.code != 0 or not nodes:
        return failed(f"job {identifier} ran, but what it left cannot be read: {reply.reason}", "check again")
    if blind:
        return failed(
            f"the node {', '.join(blind)} does not see {desk.work}, or cannot be reached by the job",
            "name a work_directory that all nodes share, and let jobs start processes on all their nodes",
        )
    if _SPOKEN not in reply.complaint:
        return failed(f"what job {identifier} printed is not in its log", "take out submit_options about output")
    return passed(f"job {identifier} ran on {', '.join(nodes)}, and was over {took_s:.1f} s after its submission")


async def _listed(desk: Desk) -> Sequence[BatchJob] | None:
    """Our jobs; None where the listing makes no sense."""
    reply = await desk.ask(desk.batch.listing())
    try:
        return desk.batch.parse_listing(reply.printed).jobs if reply.code == 0 else None
    except BatchOutputError:
        return None


def _processors(count: int) -> str:
    return "1 processor" if count == 1 else f"{count} processors"
