"""The steps of a check for Slurm: its programs, its controller, its partitions and its division of memory."""

from __future__ import annotations

import msgspec

from koala.sites.batch.check.steps import CheckContext, StepResult, SystemChecks, failed, listed, passed, warned
from koala.sites.batch.slurm.listing import MemoryReport, listing_script, parse_memory
from koala.sites.batch.slurm.options import requested_by
from koala.sites.batch.slurm.resources import MemoryNeed
from koala.sites.shell_script import shell_file


class Partition(msgspec.Struct, frozen=True):
    """A partition in the output of ``scontrol show partition``."""

    fields: dict[str, str]

    @property
    def name(self) -> str:
        return self.fields.get("PartitionName", "")

    @property
    def is_default(self) -> bool:
        return self.fields.get("Default") == "YES"

    @property
    def processors(self) -> int:
        count = self.fields.get("TotalCPUs", "")
        return int(count) if count.isascii() and count.isdigit() else 0

    def closed_to(self, groups: set[str], account: str | None) -> str | None:
        """Return why we may not use it; None if there is no obstacle."""
        if self.fields.get("State") != "UP":
            return f"{self.name} is {self.fields.get('State', 'in no known state')}"
        if self.fields.get("RootOnly") == "YES" and "root" not in groups:
            return f"{self.name} is for root only"
        allowed = _names(self.fields.get("AllowGroups"))
        if allowed is not None and not allowed & groups:
            return f"{self.name} is for the groups {listed(sorted(allowed))}"
        accounts = _names(self.fields.get("AllowAccounts"))
        if accounts is not None and account is not None and account not in accounts:
            return f"{self.name} is for the accounts {listed(sorted(accounts))}"
        if account is not None and account in (_names(self.fields.get("DenyAccounts")) or ()):
            return f"{self.name} is closed to the account {account}"
        return None


def parse_partitions(printed: str) -> list[Partition]:
    """Parse the partitions of ``scontrol show partition -o``, a line each; other lines are ignored."""
    found = []
    for line in printed.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if "PartitionName" in fields:
            found.append(Partition(fields))
    return found


def _names(text: str | None) -> set[str] | None:
    """Return the names in a list; None stands for all."""
    return None if text in (None, "ALL", "(null)", "") else set(text.split(","))


async def controller(context: CheckContext) -> StepResult:
    """Check that slurmctld answers."""
    reply = await context.ask(shell_file(__package__, "controller.sh"))
    up = [line for line in reply.printed.splitlines() if line.rstrip().endswith(" UP")]
    down = [line.strip() for line in reply.printed.splitlines() if line.rstrip().endswith(" DOWN")]
    if not up:
        return failed(
            down[0] if down else reply.reason,
            "check SLURM_CONF, which 'environment: {SLURM_CONF: ...}' sets; if it is right, the operator knows more",
        )
    return passed(up[0].strip())


async def queue(context: CheckContext) -> StepResult:
    """Check that the partitions exist and are open to us."""
    reply = await context.ask('scontrol -a show partition -o || exit\necho "groups $(id -Gn)"\n')
    partitions = parse_partitions(reply.printed)
    groups = {word for line in reply.printed.splitlines() if line.startswith("groups ") for word in line.split()[1:]}
    known = listed([each.name for each in partitions])
    if reply.code != 0 or not partitions:
        return failed(f"no partitions are told: {reply.reason}", "'scontrol show partition' should list them")
    if context.settings.queue is None:
        chosen = [each for each in partitions if each.is_default]
        if not chosen:
            return failed("there is no default partition", f"name one: 'queue: ...'; there are {known}")
    else:
        wanted = context.settings.queue.split(",")
        chosen = [each for each in partitions if each.name in wanted]
        missing = [name for name in wanted if name not in {each.name for each in chosen}]
        if missing:
            return failed(f"there is no partition {listed(missing)}", f"correct 'queue: ...'; there are {known}")
    reasons = [each.closed_to(groups, context.settings.account) for each in chosen]
    if all(reasons):
        return failed(str(reasons[0]), f"name another with 'queue: ...', or ask its operator; there are {known}")
    context.queue_processors = max(each.processors for each in chosen)
    longest = chosen[0].fields.get("MaxTime", "UNLIMITED")
    limit = "without a time limit" if longest == "UNLIMITED" else f"up to {longest} a job"
    default = ", the default" if context.settings.queue is None else ""
    return passed(
        f"{listed([each.name for each in chosen])}{default}: open, {context.queue_processors} processors, {limit}"
    )


async def memory(context: CheckContext) -> StepResult | None:
    """Report the memory that a job requests, and how many processors that leaves; no result if memory is not
    allocated."""
    settings = context.settings
    reply = await context.ask(listing_script(settings, "koala_memory"))
    if reply.code != 0:
        return failed(f"the nodes cannot be listed: {reply.reason}", "find out with sinfo there")
    report = parse_memory(reply.printed, settings.queue, requested_by(settings))
    if report is None:
        return None
    asks = "; ".join(dict.fromkeys(_asks_for(need) for need in report.needs.values()))
    if report.there == 0:
        return warned(
            f"a job asks for {asks}: no node has what it asks for",
            "ask for less: 'submit_options: [--mem-per-cpu=...]'; if they have a '--constraint' (-C), correct it",
        )
    words = f"a job asks for {asks}: {_leaves(report)}"
    if any(need.node_mb == 0 for need in report.needs.values()):
        return warned(words, "write 'submit_options: [--mem-per-cpu=...]', if jobs of others are to share its nodes")
    return passed(words)


def _asks_for(need: MemoryNeed) -> str:
    if need.processor_mb is not None:
        return f"{need.processor_mb} MB a processor ({need.source})"
    if need.node_mb:
        return f"{need.node_mb} MB on each node ({need.source})"
    return f"all memory of each node ({need.source})"


def _leaves(report: MemoryReport) -> str:
    return f"it could get {report.free} of {report.idle} idle processors"


CHECKS = SystemChecks(
    programs=("sbatch", "squeue", "sinfo", "scancel", "scontrol"),
    programs_advice="put them into the PATH of the login there, or write 'environment: {PATH: ...}' with the "
    "directory of sbatch",
    lists="squeue",
    dry_options=("--test-only",),
    controller=controller,
    queue=queue,
    after_listing=(("memory", memory),),
)
