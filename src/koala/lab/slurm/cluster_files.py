"""The contents of a Slurm cluster's files. ``koala.lab.slurm.cluster`` starts the cluster from them."""

from __future__ import annotations

from pathlib import Path

from koala.lab.plan import LabPlan, SitePlan

QUEUE = "main"
LOW_QUEUE = "low"  # jobs of the other partition preempt its jobs

# The memory of a node in Slurm's books, which no job exceeds.
MEMORY_MB = 64_000


def node_names(site: SitePlan, plan: LabPlan) -> list[str]:
    """Return the names of the nodes."""
    return [f"{site.name}{index}" for index in range(1, plan.options.nodes + 1)]


def configuration_file(site: SitePlan) -> Path:
    """Return the file for SLURM_CONF."""
    return site.directory / "slurm" / "slurm.conf"


def environment(site: SitePlan) -> dict[str, str]:
    """Return the environment for clients of the cluster."""
    return {"SLURM_CONF": str(configuration_file(site))}


def slurm_conf(site: SitePlan, plan: LabPlan) -> str:
    """Return the cluster's whole configuration.

    It runs as one user without cgroups, jobs start within about a second, and jobs of the partition ``main`` preempt
    those of ``low``. Credentials expire soon, because a requeued job would otherwise wait two minutes.
    """
    home = configuration_file(site).parent
    lines = [
        f"ClusterName={site.name}",
        f"SlurmctldHost={plan.host}({site.address})",
        f"SlurmctldPort={site.port}",
        f"SlurmUser={plan.user}",
        f"SlurmdUser={plan.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={plan.munge_socket},cred_expire=5",
        "CredType=cred/munge",
        f"StateSaveLocation={home}/state",
        f"SlurmdSpoolDir={plan.spool}/%n",
        f"SlurmctldPidFile={home}/slurmctld.pid",
        f"SlurmdPidFile={home}/slurmd-%n.pid",
        f"SlurmctldLogFile={home}/slurmctld.log",
        f"SlurmdLogFile={home}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={home}/jobcomp.txt",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_continue",
        "PriorityType=priority/basic",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "InactiveLimit=0",
        "KillWait=2",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=30",
        "MessageTimeout=10",
    ]
    if site.namespace is None and plan.loopback is not None:
        # The daemons then listen only at the address of this machine's name.
        lines.append("CommunicationParameters=NoCtldInAddrAny,NoInAddrAny")
    names = node_names(site, plan)
    for index, (name, address) in enumerate(zip(names, site.node_addresses, strict=True), 1):
        lines.append(
            f"NodeName={name} NodeAddr={address} NodeHostname={plan.host} Port={site.port + index} "
            f"CPUs={plan.options.processors_per_node} RealMemory={MEMORY_MB} State=UNKNOWN"
        )
    nodes = ",".join(names)
    lines += [
        f"PartitionName={QUEUE} Nodes={nodes} PriorityTier=10 PreemptMode=OFF Default=YES MaxTime=INFINITE State=UP",
        f"PartitionName={LOW_QUEUE} Nodes={nodes} PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def cgroup_conf() -> str:
    """Return a configuration without which slurmd looks for cgroups, which are not mounted in a network namespace."""
    return "CgroupPlugin=cgroup/v1\n"
