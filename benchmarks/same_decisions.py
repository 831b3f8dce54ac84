"""``same_decisions.py OLD NEW``: whether two versions of the scheduler decide the same, job by job.

OLD and NEW are working trees (``git worktree add``). Cases are drawn by OLD's copy of this script and handed over as
JSON; each tree runs them with its own copy: its own scheduler under its own simulator. A case is a grid with a
workload: every policy, plans for no job, for the first and for all, scans at every event and at intervals, files,
links, priorities, claiming, arrays, dependencies, shapes, checkpoints and local users. What goes wrong in it is
listed in the case (outages, silences, programs that break, what operators and users do): nothing is drawn while it
runs, so that two schedulers that send the same commands in another order see the same world.

Compared is the history of each job: when and where it was placed, when each component was claimed, when it started,
returned to its queue, and how it ended. Cases that NEW decides differently on purpose are named with ``--but`` and
the reason belongs into an ADR; any other difference fails.

``same_decisions.py check FILE`` compares a few cases with their histories in a file, as a test does with those of
``tests/core/decisions.jsonl``; ``same_decisions.py keep FILE`` writes it anew after a decision on purpose.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from koala.core import Scheduler
from koala.model.facts import JobEnded, JobPlaced, JobRequeued, TurnEntry
from koala.model.grid import AnswerFaults, Site, Startup
from koala.model.messages import CancelAsked, ReleaseBarrier, StartComponent
from koala.policies import Catalogue
from koala.simulator.torture.order import catalogue_with_orders, numbers_of
from koala.simulator.torture.storms import Storm, draw_storm
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import Workload
from koala.simulator.world.world import World

CASES = 300
# Cases in a file: every policy at least once.
CASES_KEPT = 30
# A run is over when its jobs are, or so long after the last thing that goes wrong, or after so many events.
SETTLE_S = 50_000.0
EVENTS_MAX = 50_000
# How many jobs of a case that differs, and of one job how many entries, are shown.
JOBS_SHOWN = 3
ENTRIES_SHOWN = 4
# Plans for all that wait.
ALL = 1_000

# What happened to a job: the time in microseconds, what, and where.
Entry = tuple[int, str, str]
History = dict[str, list[Entry]]


def draw_case(seed: int) -> Storm:
    """The case of this seed: a storm of which all that would be drawn on the way is gone, and more policies."""
    storm, rng = draw_storm(seed), stream(seed, "same decisions")
    policies = sorted(policy.name for policy in Catalogue.builtin())
    scheduler = msgspec.structs.replace(
        storm.grid.scheduler,
        policy=policies[seed % len(policies)],
        scan_interval_s=rng.choice((0.0, 0.0, 5.0, 30.0)),
        plan_depth=rng.choice((0, 1, ALL)),
        restarts_max=rng.choice((0, 2, 5)),
    )
    heal_at_s = storm.grid.simulation.heal_at_s or 0.0
    grid = msgspec.structs.replace(
        storm.grid,
        sites=tuple(_listed(rng, site, heal_at_s) for site in storm.grid.sites),
        scheduler=scheduler,
        simulation=msgspec.structs.replace(
            storm.grid.simulation, answers=AnswerFaults(), startup=_certain(storm.grid.simulation.startup)
        ),
    )
    return msgspec.structs.replace(storm, grid=grid, defects=())


def _listed(rng: random.Random, site: Site, heal_at_s: float) -> Site:
    """The site with listed outages in the place of what would be drawn by component."""
    times = sorted(rng.uniform(0.0, heal_at_s) for _ in range(rng.choice((0, 0, 2, 4))))
    faults = msgspec.structs.replace(
        site.simulation.faults,
        component_failure=0.0,
        application_failure=0.0,
        mean_time_between_outages_s=None,
        outages=tuple(zip(times[::2], times[1::2], strict=True)),
    )
    startup = None if site.simulation.startup is None else _certain(site.simulation.startup)
    simulation = msgspec.structs.replace(site.simulation, faults=faults, startup=startup)
    return msgspec.structs.replace(site, simulation=simulation)


def _certain(startup: Startup) -> Startup:
    return msgspec.structs.replace(startup, jitter=0.0)


def decisions(case: Storm) -> History:
    """What the scheduler of this tree does with the jobs of a case."""
    world = World(case.grid, Workload.from_arrivals(case.arrivals), case.seed)
    scheduler = Scheduler(case.grid, catalogue_with_orders())
    numbers = numbers_of(case.arrivals)
    for at, arrival in case.cancels:
        world.plan(CancelAsked(at=at, job=numbers[arrival][-1]))
    for event in case.operators:
        world.plan(event)
    until_s = (case.grid.simulation.heal_at_s or 0.0) + SETTLE_S
    history: defaultdict[str, list[Entry]] = defaultdict(list)
    for _ in range(EVENTS_MAX):
        happened = world.next(scheduler.due_at)
        if happened is None or happened.at > until_s:
            break
        for entry in scheduler.handle(happened).entries:
            world.perform(entry, happened.at)
            for job, what, where in _told(entry):
                history[str(job)].append((round(happened.at * 1e6), what, where))
    for entries in history.values():
        entries.sort()  # within one moment no order is promised
    return dict(history)


def _told(entry: TurnEntry) -> Iterable[tuple[int, str, str]]:
    match entry:
        case JobPlaced():
            yield entry.job, "placed", json.dumps(msgspec.to_builtins(entry.places))
        case StartComponent():
            yield entry.job, "claimed", f"{entry.component} at {entry.site}"
        case ReleaseBarrier():
            yield entry.job, "started", ""
        case JobRequeued():
            yield entry.job, "returned to its queue", ""
        case JobEnded():
            counts = f"tries {entry.placement_tries}/{entry.claiming_tries}, failures {entry.failures}"
            yield entry.job, "ended", f"{entry.outcome}, runs {entry.runs}, {counts}"


def run_cases() -> None:
    """Run the cases that come as lines of JSON; print the history of each as one."""
    for line in sys.stdin.buffer:
        print(json.dumps(decisions(msgspec.json.decode(line, type=Storm))), flush=True)


def draw_cases(first: int, cases: int) -> None:
    """Print the cases as lines of JSON."""
    for seed in range(first, first + cases):
        print(msgspec.json.encode(draw_case(seed)).decode())


class KeptCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case in a file, with what became of its jobs."""

    seed: int
    case: Storm
    history: History


def keep_cases(file: Path) -> None:
    """Write the first cases into the file, one a line, with what this tree decides."""
    drawn = ((seed, draw_case(seed)) for seed in range(CASES_KEPT))
    kept = [KeptCase(seed=seed, case=case, history=decisions(case)) for seed, case in drawn]
    file.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in kept))


def check_cases(file: Path) -> int:
    """Compare with the cases in the file; 1 if anything differs."""
    kept = [msgspec.json.decode(line, type=KeptCase) for line in file.read_bytes().splitlines()]
    return _compare([(each.seed, each.history, decisions(each.case)) for each in kept], but=())


def _child(tree: Path, *arguments: str, stdin: bytes = b"") -> list[str]:
    """What the tree's copy of this script prints."""
    script = tree / "benchmarks" / Path(__file__).name
    if not script.is_file():
        raise SystemExit(f"{tree} has no {script.relative_to(tree)}: name two working trees of this repository")
    environment = {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], input=stdin, stdout=subprocess.PIPE, env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script} {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout.decode().splitlines()


def differences(old: History, new: History) -> list[str]:
    """The jobs that went otherwise, told with the entries that only one of the two has."""
    found = []
    for job in sorted(old.keys() | new.keys(), key=int):
        before, after = old.get(job, []), new.get(job, [])
        if before == after:
            continue
        only = [("-", entry) for entry in before if entry not in after]
        only += [("+", entry) for entry in after if entry not in before]
        only.sort(key=lambda marked: (marked[1], marked[0]))
        found.append(f"  job {job}:")
        found += [f"    {mark} {entry[0] / 1e6:.6f} {entry[1]} {entry[2]}" for mark, entry in only[:ENTRIES_SHOWN]]
    return found


def main(arguments: Sequence[str]) -> int:
    """Draw, run in both trees, compare; 1 if anything differs that was not named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--but", type=int, nargs="*", default=[], metavar="SEED", help="cases that are to differ")
    asked = parser.parse_args(arguments)
    cases = _child(asked.old, "draw", str(asked.first), str(asked.cases))
    text = "".join(f"{case}\n" for case in cases).encode()
    tables: list[list[dict[str, Any]]] = [
        [
            {job: [tuple(entry) for entry in entries] for job, entries in json.loads(line).items()}
            for line in _child(tree, "run", stdin=text)
        ]
        for tree in (asked.old, asked.new)
    ]
    seeds = range(asked.first, asked.first + asked.cases)
    return _compare(list(zip(seeds, *tables, strict=True)), but=asked.but)


def _compare(cases: Sequence[tuple[int, History, History]], *, but: Sequence[int]) -> int:
    """Print where the histories differ, case by case; 1 if any differs that is not to, or is to and does not."""
    unexpected = 0
    for seed, old, new in cases:
        lines = differences(old, new)
        if bool(lines) == (seed in but):
            continue
        unexpected += 1
        print(f"case {seed}: {'decided otherwise' if lines else 'was to differ, and does not'}")
        print("\n".join(lines[: JOBS_SHOWN * (ENTRIES_SHOWN + 1)]))
    histories = [history for _, old, _ in cases for history in old.values()]
    counted = f"{len(histories)} jobs, {sum(map(len, histories))} entries in their histories"
    print(f"{len(cases) - unexpected} of {len(cases)} cases as expected: {counted}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["draw"]:
        draw_cases(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:] == ["run"]:
        run_cases()
    elif sys.argv[1:2] == ["keep"]:
        keep_cases(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["check"]:
        sys.exit(check_cases(Path(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
