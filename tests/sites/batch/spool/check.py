"""The steps of a check that know the batch system for tests."""

from __future__ import annotations

from koala.sites.batch.check.steps import CheckContext, StepResult, SystemChecks, failed, passed


async def controller(context: CheckContext) -> StepResult:
    """The cluster is there."""
    reply = await context.ask("spstat >/dev/null\n")
    return passed("it answers") if reply.code == 0 else failed(reply.reason, "set SPOOL_ROOT with 'environment'")


async def queue(context: CheckContext) -> StepResult:
    """The queue is there."""
    reply = await context.ask("spstat -q\n")
    name, processors = reply.printed.split()
    if context.settings.queue not in (None, name):
        return failed(f"there is no queue {context.settings.queue}", f"write 'queue: {name}'")
    context.queue_processors = int(processors)
    return passed(name)


CHECKS = SystemChecks(
    programs=("spsub", "spstat", "spdel"),
    programs_advice="put them into the PATH",
    lists="spstat",
    dry_options=("--check",),
    controller=controller,
    queue=queue,
)
