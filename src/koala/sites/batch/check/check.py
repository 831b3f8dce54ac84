"""Whether a site can be used, step by step: which steps there are for a site, in which order, and what needs what.

A step whose needs were not met is skipped and says so. The steps only ask, except that the work directory is made;
with ``run`` a reservation is tried, and one tiny job is submitted and cleaned up.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import ModuleType

from koala.model.grid import BatchSettings, Claims, Site, SiteKind
from koala.sites.batch.check import grid_engine, host, jobs, slurm
from koala.sites.batch.check.machine import OwnMachine, check_machine, this_machine
from koala.sites.batch.check.steps import (
    CheckContext,
    Finding,
    RunsScripts,
    Step,
    StepResult,
    StepStatus,
    UnansweredError,
    failed,
    listed,
    passed,
    skipped,
    warned,
)
from koala.sites.batch.system import BatchOutputError, BatchSystem

__all__ = [
    "CheckContext",
    "Finding",
    "RunsScripts",
    "StepStatus",
    "check_batch_site",
    "check_own_site",
    "steps_for",
    "system_maker",
]

_BATCH_STEPS: dict[SiteKind, ModuleType] = {
    SiteKind.SLURM: slurm,
    SiteKind.GRID_ENGINE: grid_engine,
}


def steps_for(site: Site, *, run: bool) -> list[Step]:
    """The steps of a site under a batch system, in their order."""
    assert site.batch is not None, "a site under a batch system"
    batch_steps = _BATCH_STEPS[site.kind]
    dry = jobs.DrySteps(batch_steps.DRY_OPTIONS)
    steps = [
        Step("connection", host.connection),
        Step("shell", host.shell, ("connection",)),
        Step("login", host.login, ("shell",)),
        Step("clock", host.clocks, ("shell",)),
        Step("work directory", host.work_directory, ("shell",)),
        Step("owner", host.owner, ("work directory",)),
        Step("programs", _programs, ("shell",)),
        Step("controller", _controller, ("programs",)),
        Step("queue", batch_steps.queue, ("controller",)),
    ]
    before_listing = ["queue"]
    if site.kind is SiteKind.GRID_ENGINE:
        steps.append(Step("parallel environment", batch_steps.parallel_environment, ("queue",)))
        before_listing.append("parallel environment")
    steps.append(Step("processors", jobs.processors, tuple(before_listing)))
    if site.kind is SiteKind.SLURM:
        steps.append(Step("memory", batch_steps.memory, ("processors",)))
    else:
        steps.append(Step("consumables", batch_steps.consumables, ("processors",)))
    steps.append(Step("nodes", jobs.nodes, ("processors",)))
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


def system_maker(kind: SiteKind) -> Callable[[BatchSettings], BatchSystem]:
    """What makes the batch system of a kind from the settings of a site."""
    if kind is SiteKind.SLURM:
        from koala.sites.batch.slurm.system import SlurmSystem

        return SlurmSystem
    from koala.sites.batch.grid_engine.system import GridEngineSystem

    return GridEngineSystem


async def _programs(context: CheckContext) -> StepResult:
    """The batch system's commands are found."""
    batch_steps = _BATCH_STEPS[context.site.kind]
    names = " ".join(batch_steps.PROGRAMS)
    reply = await context.ask(f'for each in {names}; do command -v "$each" >/dev/null || echo "$each"; done\n')
    missing = reply.printed.split()
    if missing:
        return failed(f"missing there: {listed(missing)}", batch_steps.PROGRAMS_ADVICE)
    return passed(listed(list(batch_steps.PROGRAMS)))


async def _controller(context: CheckContext) -> StepResult:
    """The batch system answers, and of which version it is."""
    result: StepResult = await _BATCH_STEPS[context.site.kind].controller(context)
    if result.sign is not StepStatus.PASSED:
        return result
    version = await context.ask(context.batch.version())
    if version.code != 0 or not version.printed.strip():
        return warned(f"{result.words}, but its version is not told: {version.reason}", "nothing, if all else passes")
    return passed(f"{result.words}; {' '.join(version.printed.split())}")


async def check_batch_site(context: CheckContext, steps: Sequence[Step]) -> AsyncIterator[Finding]:
    """What the steps find, each as soon as it is known."""
    unmet: dict[str, str] = {}  # the steps that did not go well, and the first one that was to blame
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


def check_own_site(site: Site, machine: OwnMachine | None = None) -> Iterator[Finding]:
    """What there is to say of a site without a batch system; of an embedded one beside a machine, by default this."""
    if site.kind is not SiteKind.LOCAL:
        yield Finding(
            step="kind",
            sign=StepStatus.FAILED,
            words="it exists only in simulations",
            advice="write 'kind: local' for processors of this machine, or 'kind: slurm' or 'kind: grid_engine'",
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
