"""What a run has to tell at its end, for a reader and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from koala.examples.applications.clocks import Seconds
from koala.examples.applications.clusters import WanEmulation
from koala.examples.applications.world import MpiWorld


@dataclass(frozen=True)
class Report:
    """The result of a run. Seconds are means over the processes, but for the time elapsed, which is the longest, and
    for when the work began, in seconds since 1970 by the clock of the first process."""

    application: str
    size: int
    processes: int
    pattern: str
    clusters: tuple[int, ...]
    wan_latency_ms: float
    wan_bandwidth_mbit_s: float | None
    iterations: int
    converged: bool
    residual: float
    began_at: float
    seconds: Seconds
    messages_across: int
    bytes_across: int
    verified_difference: float | None

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    def as_text(self) -> str:
        """A few lines for a reader."""
        spent = self.seconds
        wan = WanEmulation(self.wan_latency_ms, self.wan_bandwidth_mbit_s)
        lines = [
            ("processes", f"{self.processes}, {self.pattern}"),
            ("clusters", _clusters_text(self.clusters)),
            ("wide area", f"emulated: {wan}" if wan.is_emulated else ""),
            ("iterations", f"{self.iterations:,}{'' if self.converged else ', not converged'}"),
            ("residual", f"{self.residual:.3g}"),
            ("verified", _verified_text(self.verified_difference)),
            ("sent across", _sent_text(self)),
            ("seconds", f"{spent.elapsed_s:.3f}"),
            ("  computing", f"{spent.computing_s:.3f}"),
            ("  communicating inside clusters", f"{spent.inside_s:.3f}"),
            ("  communicating across clusters", f"{spent.across_s:.3f}"),
        ]
        width = max(len(name) for name, _ in lines)
        body = [f"  {name:<{width}}  {text}" for name, text in lines if text]
        return "\n".join([f"{self.application}, {self.size} x {self.size} points", *body])


def _clusters_text(clusters: Sequence[int]) -> str:
    if len(clusters) == 1:
        return "1"
    return f"{len(clusters)}, with {' + '.join(map(str, clusters))} processes"


def _sent_text(report: Report) -> str:
    if len(report.clusters) == 1:
        return ""
    return f"{report.messages_across:,} messages, {report.bytes_across:,} bytes"


def _verified_text(difference: float | None) -> str:
    if difference is None:
        return ""
    if difference == 0.0:
        return "equal to the serial solution"
    return f"NOT equal to the serial solution: they differ by {difference:.3g}"


@dataclass(frozen=True)
class Spent:
    """Time and messages of all processes together."""

    seconds: Seconds
    messages_across: int
    bytes_across: int


def spent_by_all(world: MpiWorld) -> Spent:
    """Add up what every process has spent; to be called once, right after the work to be measured."""
    mine = world.clock.read()
    messages_across, bytes_across = world.messages_across, world.bytes_across
    (elapsed_s,) = world.largest_of_all(mine.elapsed_s)
    *sums, messages, sent_bytes = world.sum_all(
        mine.computing_s, mine.inside_s, mine.across_s, messages_across, bytes_across
    )
    computing_s, inside_s, across_s = (each / world.size for each in sums)
    return Spent(Seconds(elapsed_s, computing_s, inside_s, across_s), int(messages), int(sent_bytes))
