"""The grid file of a lab, which ``koala up --grid`` reads."""

from __future__ import annotations

from typing import Any

import yaml

from koala.lab.grid_engine import cell_files
from koala.lab.options import LabSystem, WideAreaLink, pairs
from koala.lab.plan import LabPlan, SitePlan
from koala.lab.slurm import cluster_files

# A lab's jobs last only seconds, so the scheduler acts on every event.
_SCHEDULER = {"scan_interval_s": 0}
# About the bandwidth of a machine's loopback, which never limits a job.
_LOOPBACK = WideAreaLink(rate_mbit_s=10_000.0, delay_s=0.000_05)


def client_environment(site: SitePlan) -> dict[str, str]:
    """What the commands of a site's batch system need in their environment."""
    if site.kind is LabSystem.SLURM:
        return cluster_files.environment(site)
    return cell_files.environment(site)


def grid_text(plan: LabPlan) -> str:
    """Return the YAML text: the sites in order, and the links between them."""
    grid: dict[str, Any] = {"name": "lab", "sites": {site.name: _site(site, plan) for site in plan.sites}}
    grid["links"] = _links(plan)
    grid["scheduler"] = _SCHEDULER
    head = "# Written by koala lab up; koala lab down removes it.\n"
    return head + yaml.safe_dump(grid, sort_keys=False, default_flow_style=False, width=1_000)


def _site(site: SitePlan, plan: LabPlan) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": str(site.kind),
        "processors": site.processors,
        "work_directory": str(site.work),
        "environment": client_environment(site),
    }
    if site.kind is LabSystem.SLURM:
        described["queue"] = cluster_files.QUEUE
    else:
        described["queue"] = cell_files.QUEUE
        described["parallel_environment"] = cell_files.PARALLEL_ENVIRONMENT
    described["host"] = site.address
    if site.through:
        described["through"] = list(site.through)
        # All sites share this machine's memory, which would bypass the link.
        described["job_environment"] = {"UCX_TLS": "tcp,self"}
    if plan.options.gridftp:
        described["file_server"] = site.file_server
    return described


def _links(plan: LabPlan) -> dict[str, Any]:
    default = plan.options.wan or _LOOPBACK
    links: dict[str, Any] = {"default": _link(default.rate_mbit_s, default.delay_s)}
    differing = []
    for one, other in pairs(plan.options):
        link = plan.options.link(one, other)
        if link is not None and link != default:
            differing.append({"between": [one, other], **_link(link.rate_mbit_s, link.delay_s)})
    if differing:
        links["pairs"] = differing
    return links


def _link(rate_mbit_s: float, delay_s: float) -> dict[str, float]:
    return {"bandwidth_mbit_s": rate_mbit_s, "latency_ms": round(delay_s * 1000, 6)}
