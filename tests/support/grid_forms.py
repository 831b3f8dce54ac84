"""Handmade API values for the dashboard's tests: a site, a job, a grid, with defaults for fields that a test does not
set."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from koala.model.api import (
    ComponentRun,
    JobDetail,
    LinkInfo,
    LinkQuantity,
    LinkState,
    Overview,
    Place,
    SiteInfo,
    TransferInfo,
)

# The pages show how long ago things were, by the wall clock.
NOW = float(round(time.time()))


def site(name: str = "delft", processors: int = 16, **fields: Any) -> SiteInfo:
    """Return a site that answers and may be used, all idle by default."""
    held = fields.get("ours", 0) + fields.get("others", 0)
    filled = {
        "name": name,
        "kind": "local",
        "processors": processors,
        "usable": processors,
        "ours": 0,
        "others": 0,
        "idle": max(0, processors - held),
        "earmarked": 0,
        "trust": "usable",
        "drained": False,
        "errors": 0,
        "reported_at": NOW - 2,
    }
    return SiteInfo(**{**filled, **fields})


def component(part: int = 0, where: str = "delft", *, claimed_at: float, **fields: Any) -> ComponentRun:
    """Return one claim of a component, of four processors."""
    filled = {"token": f"1.{part}.{claimed_at}", "part": part, "site": where, "processors": 4}
    return ComponentRun(**{**filled, "claimed_at": claimed_at, **fields})


def transfer(number: int = 1, *, started_at: float = NOW - 60, **fields: Any) -> TransferInfo:
    """Return a transfer of 1 GB from leiden to delft, half of it done."""
    filled = {
        "id": f"t{number}",
        "file": f"input-{number}.dat",
        "source": "leiden",
        "target": "delft",
        "size_bytes": 10**9,
        "brought_bytes": 5 * 10**8,
        "started_at": started_at,
        "jobs": [1],
    }
    return TransferInfo(**{**filled, **fields})


def job(number: int = 1, state: str = "waiting", **fields: Any) -> JobDetail:
    """Return a job of ada's, submitted 100 s ago."""
    filled = {
        "id": number,
        "name": f"job-{number}",
        "owner": "ada",
        "state": state,
        "priority": "low",
        "job_type": "plain",
        "kind": "non-fixed",
        "policy": "WF",
        "processors": 8,
        "submitted_at": NOW - 100,
        "since": NOW - 100,
        "description": "components:\n  - processors: 8\n",
    }
    return JobDetail(**{**filled, **fields})


def places(*pairs: tuple[str, int]) -> list[Place]:
    """Return the places of a job."""
    return [Place(site=name, processors=processors) for name, processors in pairs]


def link(one: str, two: str, mbit_s: float = 100.0, believed_mbit_s: float | None = None) -> LinkInfo:
    """Return a link, by default as fast as configured."""
    return LinkInfo(
        between=(one, two),
        bandwidth_mbit_s=mbit_s,
        believed_mbit_s=mbit_s if believed_mbit_s is None else believed_mbit_s,
        latency_s=0.005,
    )


def link_state(source: str, target: str, measured_mbit_s: float | None = None) -> LinkState:
    """Return one direction of a link, as declared or measured by a probe."""
    bandwidth = LinkQuantity(declared=100.0, believed=100.0, origin="declared")
    latency = LinkQuantity(declared=0.005, believed=0.005, origin="declared")
    if measured_mbit_s is not None:
        probed: dict[str, Any] = {"origin": "forecast", "predictor": "median of 5", "measured_at": NOW - 60.0}
        probed |= {"measurements": 7, "measured_by": "probe"}
        believed = measured_mbit_s
        bandwidth = msgspec.structs.replace(bandwidth, **probed, believed=believed, measured=believed, error=1.5)
        latency = msgspec.structs.replace(latency, **probed, believed=0.0123, measured=0.012, error=0.001)
    return LinkState(source=source, target=target, bandwidth_mbit_s=bandwidth, latency_s=latency)


def all_links(sites: list[SiteInfo]) -> list[LinkInfo]:
    """Return a link between every two of the sites."""
    return [link(one.name, two.name) for index, one in enumerate(sites) for two in sites[index + 1 :]]


def overview(sites: list[SiteInfo], **fields: Any) -> Overview:
    """Return the grid of these sites, with no activity."""
    filled: dict[str, Any] = {
        "grid": "das",
        "version": "0",
        "now": NOW,
        "started_at": NOW - 7_200,
        "policy": "WF",
        "sites": sites,
        "links": all_links(sites),
        "transfers": [],
        "waiting_high": [],
        "waiting_low": [],
        "claiming": [],
        "active": [],
        "counts": {},
    }
    return Overview(**{**filled, **fields})
