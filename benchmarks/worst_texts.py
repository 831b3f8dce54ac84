"""Which small texts cost the daemon most: a search that changes job descriptions at random and keeps what is dearest
by the byte.

Usage: python benchmarks/worst_texts.py [SECONDS [SEED [SITES]]]. Two costs are told apart: reading, which is done in
a thread or in a process of its own, and all that the event loop does itself (a dry run, the submission, a scan, an
explanation and the cancellation), for which everybody waits. Times are processor seconds on this machine.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

import msgspec

from koala.core import Scheduler
from koala.daemon.service.submissions import try_out
from koala.daemon.service.submitted_texts import Unreadable, read_submission, with_clusters
from koala.model.api.questions import Submission
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site
from koala.model.messages import CancelAsked, JobSubmitted, SiteReported, Tick
from koala.model.nodes import NodeClass, NodeSize
from koala.policies import Catalogue

# The fields of a job with values that are hard in some way; each is a text of YAML at the left margin.
NUMBERS = [0, 1, 2, 3, 7, 64, 100, 999, 1_000, 65_536, 99_999, 1_000_000, 9_999_991, 10_000_000]
POLICIES = ["WF", "CF", "CM", "NCM", "FCM", "NFCM", "A1", "A2", "B1", "B3(chunk=0.5)", "B5"]
PATTERNS = ["all-to-all", "ring", "cube", "master-worker", "none"]
GIB = 2**30
# The best so many are kept and changed further.
KEPT = 12


def draw_task(rng: random.Random) -> str:
    """What each task of a component asks for."""
    parts = [f"count: {rng.choice(NUMBERS[1:10])}", f"processors: {rng.choice([1, 2, 3, 7, 64])}"]
    if rng.random() < 0.5:
        parts.append(f"memory: {rng.choice([1, 3, 17, 64, 1000])}G")
    if rng.random() < 0.5:
        parts.append(f"gpus: {rng.choice([1, 2, 5, 1024])}")
    if rng.random() < 0.3:
        parts.append(f"constraint: {'&'.join(['fast'] * rng.randint(1, 40))}")
    return "{" + ", ".join(parts) + "}"


def draw_size(rng: random.Random) -> str:
    """How large it is, in one of the ways to say so."""
    way = rng.randrange(7)
    if way == 0:
        return f"processors: {rng.choice(NUMBERS)}"
    if way == 1:
        each = f"{{processors: {rng.choice(NUMBERS)}, count: {rng.choice([1, 10, 100, 500, 1000])}}}"
        return f"components: [{', '.join([each] * rng.choice([1, 1, 2, 10]))}]"
    if way == 2:
        return f"task: {draw_task(rng)}"
    if way == 3:
        parts = [
            f"{{task: {draw_task(rng)}, count: {rng.choice([1, 2, 10, 100])}}}" for _ in range(rng.randint(1, 30))
        ]
        return f"components: [{', '.join(parts)}]"
    if way == 4:
        least = rng.choice(["", f", component_min: {rng.choice(NUMBERS[1:])}"])
        return f"flexible: {{processors: {rng.choice(NUMBERS)}{least}}}"
    if way == 5:
        parts = [f"[{', '.join(['1'] * rng.choice([1, 10, 99]))}]" for _ in range(rng.choice([1, 10, 100]))]
        return f"flexible: {{processors: 100, splits: [{', '.join(parts)}]}}"
    count = rng.choice([2, 10, 100, 400])
    tasks = ", ".join(f"t{number}: {rng.choice([1, 2, 9])}" for number in range(count))
    edges = ", ".join(
        f"[t{rng.randrange(count)}, t{rng.randrange(count)}, {rng.randint(1, 9)}]" for _ in range(count * 2)
    )
    return f"mcr: {rng.choice([1, 4, 16])}\ntasks: {{{tasks}}}\nedges: [{edges}]"


def draw_communication(rng: random.Random) -> str:
    """Who talks to whom, and how much."""
    how = rng.choice(["bisection_mbit_s: 10", "per_processor_mbit_s: 1", "bisection_mbit_s: 1000000"])
    pattern = rng.choice(PATTERNS)
    dimensions = f", dimensions: {rng.randint(1, 8)}" if pattern == "cube" else ""
    return f"communication: {{pattern: {pattern}, {how}{dimensions}}}"


def draw_array(rng: random.Random) -> str:
    """Many elements, in few ranges or in many."""
    if rng.random() < 0.5:
        return f"array: 0-{rng.choice([1, 99, 99_999])}%{rng.choice([1, 10, 100_000])}"
    step = rng.choice([1, 3])
    count = rng.choice([3, 100, 1_000])
    return "array: '" + ",".join(f"{number * 100}-{number * 100 + 90}:{step}" for number in range(count)) + "'"


FIELDS: list[tuple[str, float, Callable[[random.Random], str]]] = [
    ("size", 1.0, draw_size),
    ("policy", 0.6, lambda rng: f"policy: {rng.choice(POLICIES)}"),
    ("communication", 0.3, draw_communication),
    ("array", 0.3, draw_array),
    ("priority", 0.2, lambda _: "priority: high"),
    ("walltime", 0.3, lambda rng: f"walltime: {rng.choice(['1m', '1h', '11d'])}"),
    ("hold", 0.1, lambda _: "hold: true"),
    ("begin", 0.1, lambda _: "begin_at: now+2h"),
    ("aliases", 0.1, lambda rng: f"name: &a {'x' * rng.choice([1, 200])}"),
]


def drawn(rng: random.Random) -> dict[str, str]:
    """A description, field by field."""
    return {name: draw(rng) for name, often, draw in FIELDS if rng.random() < often}


def changed(one: dict[str, str], rng: random.Random) -> dict[str, str]:
    """The same with one field drawn anew, or left out."""
    name, _, draw = rng.choice(FIELDS)
    other = dict(one)
    if name != "size" and name in other and rng.random() < 0.4:
        del other[name]
    else:
        other[name] = draw(rng)
    return other


def text_of(fields: dict[str, str]) -> str:
    """As a file of YAML."""
    return "application: {executable: /bin/true}\n" + "\n".join(fields.values()) + "\n"


class Daemon:
    """What the daemon does with a text, without its doors."""

    def __init__(self, sites: int) -> None:
        self.catalogue = Catalogue.builtin()
        self.grid = Grid(
            sites=tuple(Site(name=f"s{number}", processors=512) for number in range(sites)),
            links=Links(default=Link(bandwidth_mbit_s=1_000.0, latency_s=0.01)),
            scheduler=SchedulerParameters(scan_interval_s=0.0, plan_depth=8),
        )
        nodes = tuple(
            NodeClass(16, node, node, ("fast",))
            for node in (NodeSize(8, (32 + number) * GIB, (("a100", 4),)) for number in range(4))
        )
        self.reports = [
            SiteReported(at=1.0, site=f"s{number}", processors=512, others=0, nodes=nodes) for number in range(sites)
        ]

    def cost(self, text: str) -> tuple[float, float] | None:
        """Processor seconds of reading and of the loop; None where it is no job."""
        begun = time.process_time()
        policies = [policy.name for policy in self.catalogue]
        request = read_submission(Submission(description=text, source="job.yaml"), ["s0", "s1"], policies)
        if not isinstance(request, Unreadable) and request.tasks is not None and not request.task_clusters:
            request = with_clusters(request)
        reading = time.process_time() - begun
        if isinstance(request, Unreadable):
            return reading, 0.0
        scheduler = Scheduler(self.grid, self.catalogue)
        for report in self.reports:
            scheduler.handle(report)
        begun = time.process_time()
        try_out(
            request,
            owner="x",
            guest=False,
            sees_all=True,
            catalogue=self.catalogue,
            default_policy="WF",
            scheduler=scheduler,
            now=2.0,
        )
        steps = [time.process_time() - begun]
        for call in (
            lambda: scheduler.handle(JobSubmitted(at=2.0, job=1, request=request)),
            lambda: scheduler.handle(Tick(at=3.0)),
            lambda: msgspec.json.encode(scheduler.explain(1)),
            lambda: scheduler.handle(CancelAsked(at=4.0, job=1)),
        ):
            begun = time.process_time()
            call()
            steps.append(time.process_time() - begun)
        return reading, max(steps)


def main() -> None:
    """Search for so many seconds."""
    given = [int(value) for value in sys.argv[1:]]
    seconds, seed, sites = given + [60, 1, 20][len(given) :]
    rng = random.Random(seed)
    daemon = Daemon(sites)
    best: dict[str, list[tuple[float, float, dict[str, str]]]] = {"reading": [], "loop": []}
    tried = errors = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = rng.choice(["reading", "loop"])
        pool = best[kind]
        fields = changed(rng.choice(pool)[2], rng) if pool and rng.random() < 0.7 else drawn(rng)
        text = text_of(fields)
        tried += 1
        try:
            found = daemon.cost(text)
        except Exception as error:
            errors += 1
            sys.stdout.write(f"raised {error!r}:\n{text[:500]}\n")
            continue
        assert found is not None
        for name, value in zip(("reading", "loop"), found, strict=True):
            entries = best[name]
            if all(text_of(each[2]) != text for each in entries):
                entries.append((value / len(text), value, fields))
                entries.sort(key=lambda each: -each[0])
                del entries[KEPT:]
    sys.stdout.write(f"{tried} texts in {seconds} s on {sites} sites, seed {seed}; {errors} raised\n")
    for name, entries in best.items():
        for by_byte, value, fields in entries[:4]:
            text = text_of(fields)
            sys.stdout.write(
                f"{name}: {value * 1000:.1f} ms for {len(text)} bytes, {by_byte * 1e6:.2f} us a byte: "
                f"{text[36:240]!r}\n"
            )


if __name__ == "__main__":
    main()
