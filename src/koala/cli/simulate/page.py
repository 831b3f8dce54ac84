"""``koala simulate --html``: the words and numbers at the head of the page; all that is drawn is in the simulator."""

from __future__ import annotations

from typing import Any


def facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """A run in a few numbers: (what, how much)."""
    from koala.simulator.report.page import duration

    wait, slowdown = metrics["wait_s"], metrics.get("bounded_slowdown")
    found = [("jobs", f"{metrics['jobs']:,}")]
    if wait is not None:
        found += [
            ("mean wait", duration(wait["mean"])),
            ("median wait", duration(wait["median"])),
            ("95 % waited under", duration(wait["p95"])),
            ("mean response", duration(metrics["response_s"]["mean"])),
        ]
    if slowdown is not None:
        found.append(("bounded slowdown", f"{slowdown['mean']:,.1f}"))
    use = metrics["utilisation"]
    found.append(("utilisation", f"{use['ours']:.1%}"))
    if use["others"] > 0:
        found.append(("and by other users", f"{use['others']:.1%}"))
    found.append(("makespan", duration(metrics["makespan_s"])))
    return found
