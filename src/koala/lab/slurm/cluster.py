"""One Slurm cluster of a lab: started from its files, and queried for its state."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from koala.lab import programs
from koala.lab.daemons import Daemons
from koala.lab.errors import LabFailedError
from koala.lab.plan import LabPlan, SitePlan
from koala.lab.slurm import cluster_files

PROGRAMS = ("slurmctld", "slurmd", "sinfo", "squeue", "sbatch", "scancel", "scontrol")
_ASK_S = 5.0


def controller(site: SitePlan) -> str:
    """Return the name of the controlling daemon."""
    return f"{site.name}-slurmctld"


def start(site: SitePlan, plan: LabPlan, daemons: Daemons) -> None:
    """Start the cluster; return when all its nodes are idle."""
    home = cluster_files.configuration_file(site).parent
    for directory in (home / "state", plan.spool, site.work):
        directory.mkdir(parents=True, exist_ok=True)
    cluster_files.configuration_file(site).write_text(cluster_files.slurm_conf(site, plan), encoding="utf-8")
    (home / "cgroup.conf").write_text(cluster_files.cgroup_conf(), encoding="utf-8")
    environment = cluster_files.environment(site)
    slurmd, slurmctld = (programs.find(program) or program for program in ("slurmd", "slurmctld"))
    daemons.start(controller(site), [slurmctld, "-D", "-i"], site, environment)
    for name in cluster_files.node_names(site, plan):
        daemons.start(_node(name), [slurmd, "-D", "-N", name], site, environment)
    wait(site, cluster_files.node_names(site, plan), daemons)


def wait(site: SitePlan, nodes: Sequence[str], daemons: Daemons) -> None:
    """Wait until the controller answers and these nodes can be used. Raises LabFailedError with the daemons' output
    if that takes too long."""
    names = [controller(site), *map(_node, nodes)]

    def settled() -> bool:
        return (answers(site) and _usable(site) >= set(nodes)) or not all(map(daemons.is_alive, names))

    if not programs.wait_until(settled, programs.START_S_MAX) or not all(map(daemons.is_alive, names)):
        missing = [name for name in names if not daemons.is_alive(name)] or [controller(site)]
        said = "; ".join(f"{name}: {daemons.said(name)}" for name in missing)
        raise LabFailedError(f"{site.name}: its Slurm cluster did not start: {said}")


def nodes_of(site: SitePlan, plan: LabPlan, names: Collection[str]) -> list[str]:
    """Return the nodes whose daemons have these names."""
    return [node for node in cluster_files.node_names(site, plan) if _node(node) in names]


def answers(site: SitePlan) -> bool:
    """Return True if the controller accepts commands."""
    return " is UP" in _ask(site, "scontrol", "ping").stdout


def version(site: SitePlan) -> str:
    """Return name and version, such as Slurm 22.05.8. The daemon reports it without a configuration, its clients do
    not."""
    del site  # all clusters of a lab run the same programs
    return "Slurm " + programs.run([programs.find("slurmctld") or "slurmctld", "-V"]).stdout.partition(" ")[2].strip()


def jobs(site: SitePlan) -> int | None:
    """Return how many jobs wait or run; None if there is no answer."""
    answer = _ask(site, "squeue", "--noheader", "--array", "--format=%i")
    return len(answer.stdout.split()) if answer.code == 0 else None


def _node(name: str) -> str:
    return f"{name}-slurmd"


def _usable(site: SitePlan) -> set[str]:
    answer = _ask(
        site, "sinfo", "--noheader", "--responding", "--Node", "--states=idle,mixed,allocated", "--format=%N"
    )
    return set(answer.stdout.split()) if answer.code == 0 else set()


def _ask(site: SitePlan, *words: str) -> programs.ProgramResult:
    """Query the cluster, with a short limit: clients wait for a dead controller for up to a minute."""
    try:
        return programs.run([*site.through, *words], cluster_files.environment(site), timeout_s=_ASK_S)
    except LabFailedError as error:
        return programs.ProgramResult(1, "", str(error))
