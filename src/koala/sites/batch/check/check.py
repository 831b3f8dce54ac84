"""The check of a site, step by step: the steps of each kind of site, their order and their dependencies.

A step is skipped, and says so, if a step that it needs did not pass. The steps only ask questions, except that they
create the work directory. With ``run`` they also try a reservation, submit one tiny job and clean up after it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence

from koala.model.grid import Claims, Site, SiteKind
from koala.sites.batch.check import host, jobs
from koala.sites.batch.check.machine import OwnMachine, check_machine, this_machine
from koala.sites.batch.check.steps import (
    CheckContext,
    Finding,
    RunsScripts,
    Step,
    StepResult,
    StepStatus,
    SystemChecks,
    UnansweredError,
    failed,
    listed,
    passed,
    skipped,
    warned,
)
from koala.sites.batch.system import BatchOutputError

__all__ = [
    "CheckContext",
    "Finding",
    "RunsScripts",
    "StepStatus",
    "check_batch_site",
    "check_own_site",
    "steps_for",
]


def steps_for(site: Site, checks: SystemChecks, *, run: bool) -> list[Step]:
    """Return the steps for a site under a batch system, in order."""
    assert site.batch is not None, "a site under a batch system"
    dry = jobs.DrySteps(checks.dry_options)
    before_listing = ["queue", *(name for name, _ in checks.before_listing)]
    steps = [
        Step("connection", host.connection),
        Step("shell", host.shell, ("connection",)),
        Step("login", host.login, ("shell",)),
        Step("clock", host.clocks, ("shell",)),
        Step("work directory", host.work_directory, ("shell",)),
        Step("owner", host.owner, ("work directory",)),
        Step("programs", _programs, ("shell",)),
        Step("controller", _controller, ("programs",)),
        Step("queue", checks.queue, ("controller",)),
        *(Step(name, step, ("queue",)) for name, step in checks.before_listing),
        Step("processors", jobs.processors, tuple(before_listing)),
        *(Step(name, step, ("processors",)) for name, step in checks.after_listing),
        Step("nodes", jobs.nodes, ("processors",)),
    ]
    before_submission = [*before_listing, "work directory"]
    if site.batch.account is not None:
        steps.append(Step("account", dry.account, tuple(before_submission)))
        before_submission.append("account")
    steps.append(Step("submission", dry.submission, tuple(before_submission)))
    if site.batch.claims is Claims.RESERVATION:
        steps.append(Step("reservation", jobs.reservation if run else _with_run, ("submission",)))
    steps += [
        Step("mpiexec", host.mpiexec, ("shell",)),
        *([Step("containers", host.containers, ("shell",))] if site.containers is not None else []),
        Step("files", host.files, ("connection",)),
    ]
    steps.append(Step("job", jobs.job if run else _with_run, ("submission", "processors")))
    return steps


async def _with_run(_: CheckContext) -> StepResult:
    return skipped("tried with --run")


async def _programs(context: CheckContext) -> StepResult:
    """Check that the commands of the batch system exist."""
    names = " ".join(context.checks.programs)
    reply = await context.ask(f'for each in {names}; do command -v "$each" >/dev/null || echo "$each"; done\n')
    missing = reply.printed.split()
    if missing:
        return failed(f"missing there: {listed(missing)}", context.checks.programs_advice)
    return passed(listed(list(context.checks.programs)))


async def _controller(context: CheckContext) -> StepResult:
    """Check that the batch system answers, and find its version."""
    result = await context.checks.controller(context)
    if result.sign is not StepStatus.PASSED:
        return result
    version = await context.ask(context.batch.version())
    if version.code != 0 or not version.printed.strip():
        return warned(f"{result.words}, but its version is not told: {version.reason}", "nothing, if all else passes")
    return passed(f"{result.words}; {' '.join(version.printed.split())}")


async def check_batch_site(context: CheckContext, steps: Sequence[Step]) -> AsyncIterator[Finding]:
    """Yield the finding of each step as soon as it is known."""
    unmet: dict[str, str] = {}  # the steps that did not pass, each with the first step to blame
    for step in steps:
        blamed = next((unmet[need] for need in step.needs if need in unmet), None)
        if blamed is not None:
            unmet[step.name] = blamed
            yield Finding(step=step.name, sign=StepStatus.SKIPPED, words=f"not tried, since it needs: {blamed}")
            continue
        result = await _run(step, context)
        if result is None:
            continue
        if result.sign in (StepStatus.FAILED, StepStatus.SKIPPED):
            unmet[step.name] = step.name
        yield Finding(step=step.name, sign=result.sign, words=result.words, advice=result.advice)


async def _run(step: Step, context: CheckContext) -> StepResult | None:
    try:
        return await step.run(context)
    except UnansweredError as error:
        return failed(f"no answer: {error}", "check again; if it stays so, run the command there by hand")
    except BatchOutputError as error:
        return failed(f"what the batch system prints makes no sense here: {error}", "tell us, with its version")


def check_own_site(site: Site, kinds: str, machine: OwnMachine | None = None) -> Iterator[Finding]:
    """Yield the findings for a site without a batch system; an embedded site is compared with a machine, by default
    this one. ``kinds`` lists the kinds that a site may have."""
    if site.kind != SiteKind.LOCAL:
        yield Finding(
            step="kind",
            sign=StepStatus.FAILED,
            words="it exists only in simulations",
            advice=f"write 'kind: local' for processors of this machine, or {kinds}",
        )
        return
    yield from check_machine(site, machine or this_machine())
    if site.containers is not None and shutil.which(site.containers.program) is None:
        yield Finding(
            step="containers",
            sign=StepStatus.WARNED,
            words=f"there is no {site.containers.program}; jobs with an image cannot run here",
            advice=f"install {site.containers.tool}, or leave out 'containers'",
        )
    has_shell = os.access("/bin/sh", os.X_OK)
    yield Finding(
        step="shell",
        sign=StepStatus.PASSED if has_shell else StepStatus.FAILED,
        words="/bin/sh runs its components" if has_shell else "/bin/sh is missing",
        advice="" if has_shell else "install a POSIX shell as /bin/sh",
    )
