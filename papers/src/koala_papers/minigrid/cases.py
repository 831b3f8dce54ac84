"""The runs of the study of mini-grids: every case, and its number of seeds at first.

A case is a policy with its threshold, on jobs of some bandwidth and pattern, on a grid of some wiring. ``runs``
executes a case; ``claims``, ``duels`` and ``figures`` evaluate the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from koala.study import Parameters

IDEAL = "Ideal"
MIGRATION_ONLY = "Migration-Only"
INITIAL = "Initial"
PLAIN_MODULES = ("A1", "B1", "B2", "B4")
OWN_A, OWN_B = "A2", "B5"
# The bandwidths of the paper's figures 15 to 18.
LOW_BSBW, HIGH_BSBW = 300.0, 800.0
FULL_LSLT = 1.0
# The chunks over which B3 goes from B1 to Migration-Only.
CHUNKS_TO_THE_ENDS = (0.25, 0.5, 0.6, 0.7, 0.85, 0.95, 1.0)
# Further chunks of B3 and thresholds of A1 for the comparison with our own policies: the best settings of a wider
# search at a quarter of the size. There B3 had chunks and thresholds that were up to two seconds better still; for A1
# other thresholds were searched up to 400 Mbit/s only, and none was better.
RIVAL_CHUNKS = (0.5, 0.6)
RIVAL_LSLT = 0.8
# Chunks and thresholds that were best at no bandwidth under three seeds (201 to 203).
NEVER_BEST = ((0.6, FULL_LSLT), (0.9, RIVAL_LSLT))
RIVAL_SATISFY = "A1(objective=least-bandwidth)"
# The other orders in which A1 may search for its first solution; the paper does not name its own.
A1_ORDERS = {"most-free": "A1(order=most-free)", "least-bandwidth": RIVAL_SATISFY}
# Up to here Initial has a steady state, or nearly; beyond, a run takes long and shows little.
INITIAL_BSBW = 400.0
MIXED = (200.0, 900.0)
PATTERNS = ("all-to-all", "ring", "cube", "master-worker")
PATTERN_BSBW = 500.0
STAR, ISLANDS = "star", "islands"
ISLAND_BSBWS = (LOW_BSBW, HIGH_BSBW)
CLUSTERS = 4
# The modules for the tests of patterns and wirings.
SELECTED = ("A1", OWN_A, "B1", "B3(chunk=0.85)", OWN_B)
# Our module must beat these on every pattern and wiring. A1 with the most idle first was worse than with the least
# bandwidth on each, or the same on rings, under every one of eight seeds (201 to 208).
PATTERN_RIVALS = ("A1", RIVAL_SATISFY, "B3(chunk=0.85)")

Bandwidths = Annotated[tuple[Annotated[float, msgspec.Meta(gt=0, le=100_000)], ...], msgspec.Meta(min_length=1)]
Thresholds = Annotated[tuple[Annotated[float, msgspec.Meta(gt=0, le=10)], ...], msgspec.Meta(min_length=1)]
Chunks = Annotated[tuple[Annotated[float, msgspec.Meta(gt=0, le=1)], ...], msgspec.Meta(min_length=1)]
Seeds = Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class MiniGridParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs_per_cluster``: the number of jobs for each of the four clusters in a run;
    - ``bsbw``: the bisection bandwidths, in Mbit/s;
    - ``lslt``: the thresholds, as shares of a link's capacity;
    - ``chunks``: those of B3, as shares of a job;
    - ``lslt_seeds``: the number of seeds, among those of the first look, for B3 over the thresholds, our own
      policies and their rivals, and mixed bandwidths;
    - ``pattern_seeds``: the number for patterns and wirings;
    - ``surface_seeds``: the number for the surfaces over thresholds and bandwidths, and for wirings at the low and
      the high bandwidth;
    - ``clusters``: the number of clusters; the paper has grids of 2, 4 and 8.
    """

    jobs_per_cluster: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 400_000
    bsbw: Bandwidths = tuple(float(mbit_s) for mbit_s in range(200, 1000, 100))
    lslt: Thresholds = (0.4, 0.6, 0.8, 1.0, 1.2)
    chunks: Chunks = (0.7, 0.75, 0.8, 0.85, 0.9)
    lslt_seeds: Seeds = 3
    pattern_seeds: Seeds = 4
    surface_seeds: Seeds = 1
    clusters: Annotated[int, msgspec.Meta(ge=2, le=64)] = CLUSTERS


class MiniGridCase(msgspec.Struct, frozen=True, order=True):
    """One point of the study, without its seed.

    ``policy`` is a name of the catalogue with its parameters except the threshold, which is ``lslt``: None for a
    policy without one, or with a choice of its own. Every job's bandwidth is drawn from ``bsbw_low`` to
    ``bsbw_high``, in Mbit/s; both are the same if all are alike. With ``whole_gaps`` jobs come whole seconds apart.
    """

    policy: str
    lslt: float | None = None
    bsbw_low: float = LOW_BSBW
    bsbw_high: float = LOW_BSBW
    pattern: str = PATTERNS[0]
    wiring: str = STAR
    whole_gaps: bool = False

    @property
    def name(self) -> str:
        """The policy with its threshold, in the catalogue's syntax."""
        if self.lslt is None:
            return self.policy
        said = f"lslt={self.lslt:g}"
        return f"{self.policy[:-1]}, {said})" if self.policy.endswith(")") else f"{self.policy}({said})"

    def in_words(self) -> str:
        """Return its name for people."""
        mixed = f"{self.bsbw_low:g}-{self.bsbw_high:g}" if self.bsbw_low != self.bsbw_high else f"{self.bsbw_low:g}"
        others = [each for each in (self.pattern, self.wiring) if each not in (PATTERNS[0], STAR)]
        gaps = ["gaps of whole seconds"] if self.whole_gaps else []
        return ", ".join([self.name, f"{mixed} Mbit/s", *others, *gaps])

    def as_work(self) -> dict[str, Any]:
        """Return all its properties, for a unit of work."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def at(policy: str, bsbw: float, lslt: float | None = FULL_LSLT) -> MiniGridCase:
    """Return the case of the policy with this bandwidth for all jobs."""
    return MiniGridCase(policy, lslt, bsbw, bsbw)


def alone(policy: str, *, whole_gaps: bool = False) -> MiniGridCase:
    """Return the case of a policy that ignores bandwidths."""
    return MiniGridCase(policy, whole_gaps=whole_gaps)


def mixed(policy: str, lslt: float | None = FULL_LSLT) -> MiniGridCase:
    """Return the case of the policy with a bandwidth of its own for each job."""
    return MiniGridCase(policy, lslt, *MIXED)


def chunked(chunk: float) -> str:
    """Return B3 with this chunk."""
    return f"B3(chunk={chunk:g})"


def selected(policy: str, bsbw: float, pattern: str = PATTERNS[0], wiring: str = STAR) -> MiniGridCase:
    """Return the case of a policy on another pattern or wiring."""
    return MiniGridCase(policy, None if policy in (OWN_A, OWN_B) else FULL_LSLT, bsbw, bsbw, pattern, wiring)


def modules(parameters: MiniGridParameters) -> tuple[str, ...]:
    """Return the policies with a threshold, in the order of the paper."""
    return (*PLAIN_MODULES, *map(chunked, parameters.chunks))


def surface_modules(parameters: MiniGridParameters) -> tuple[str, ...]:
    """Return the policies that the paper draws as surfaces: of B3 the smallest and the largest chunk."""
    return (*PLAIN_MODULES, *map(chunked, sorted({min(parameters.chunks), max(parameters.chunks)})))


# ------------------------------------------------------------------------------------------- the cases


def cases_of(parameters: MiniGridParameters, seed_number: int) -> list[MiniGridCase]:
    """Return the cases of a seed of the first look, by its number from 0 on, each once."""
    found = list(_always(parameters))
    if seed_number < parameters.lslt_seeds:
        found += _chunks_by_threshold(parameters)
        found += _own_and_rivals(parameters)
    if seed_number < parameters.pattern_seeds:
        found += _patterns()
    if seed_number < parameters.surface_seeds:
        found += _surfaces(parameters)
        found += _wirings()
    return in_order(found)


def in_order(cases: Iterable[MiniGridCase]) -> list[MiniGridCase]:
    """Return each case once, with cases of the same jobs beside each other, since drawing jobs takes time."""
    return sorted(set(cases), key=_by_jobs)


def _by_jobs(case: MiniGridCase) -> tuple[Any, ...]:
    jobs = (case.whole_gaps, case.bsbw_low, case.bsbw_high, case.pattern)
    return (*jobs, case.wiring, case.policy, case.lslt or 0.0)


def _always(parameters: MiniGridParameters) -> Iterator[MiniGridCase]:
    """Yield the cases of every seed: the bounds, every module at the full threshold, and B3 with further chunks."""
    for policy in (IDEAL, MIGRATION_ONLY):
        yield alone(policy)
        yield alone(policy, whole_gaps=True)
    for bsbw in parameters.bsbw:
        if bsbw <= INITIAL_BSBW:
            yield at(INITIAL, bsbw, None)
        for policy in modules(parameters):
            yield at(policy, bsbw)
    for bsbw in (LOW_BSBW, HIGH_BSBW):
        for policy in ("B1", *map(chunked, CHUNKS_TO_THE_ENDS)):
            yield at(policy, bsbw)


def _chunks_by_threshold(parameters: MiniGridParameters) -> Iterator[MiniGridCase]:
    """Yield B3 at a low and a high bandwidth, over all thresholds; and Initial where it is slow."""
    for bsbw in parameters.bsbw:
        yield at(INITIAL, bsbw, None)
    for bsbw in (LOW_BSBW, HIGH_BSBW):
        for lslt in parameters.lslt:
            for chunk in parameters.chunks:
                yield at(chunked(chunk), bsbw, lslt)


def surface_bandwidths(parameters: MiniGridParameters) -> tuple[float, ...]:
    """Return every second bandwidth and the greatest: enough to show where the surfaces rise."""
    ordered = sorted(parameters.bsbw)
    return tuple(sorted({*ordered[::2], ordered[-1]}))


def _surfaces(parameters: MiniGridParameters) -> Iterator[MiniGridCase]:
    """Yield the modules of the surfaces over bandwidths and thresholds, and those of lines over thresholds."""
    for lslt in parameters.lslt:
        for bsbw in surface_bandwidths(parameters):
            for policy in surface_modules(parameters):
                yield at(policy, bsbw, lslt)
        for bsbw in (LOW_BSBW, HIGH_BSBW):
            for policy in modules(parameters):
                yield at(policy, bsbw, lslt)


def rivals_of(parameters: MiniGridParameters) -> dict[str, list[tuple[str, float]]]:
    """Return for each policy of our own the paper's policies and thresholds whose best is its rival."""
    chunks = (*RIVAL_CHUNKS, *parameters.chunks)
    pairs = ((chunk, lslt) for chunk in chunks for lslt in (RIVAL_LSLT, FULL_LSLT))
    return {
        OWN_A: [(policy, FULL_LSLT) for policy in ("A1", *A1_ORDERS.values())],
        OWN_B: [(chunked(chunk), lslt) for chunk, lslt in pairs if (chunk, lslt) not in NEVER_BEST],
    }


def _own_and_rivals(parameters: MiniGridParameters) -> Iterator[MiniGridCase]:
    """Yield our own policies and their rivals, on all bandwidths and on mixed ones."""
    for own, rivals in rivals_of(parameters).items():
        for policy, lslt in ((own, None), *rivals):
            for bsbw in parameters.bsbw:
                yield at(policy, bsbw, lslt)
            yield mixed(policy, lslt)
    for policy in modules(parameters):
        yield mixed(policy)


def places() -> list[tuple[str, str]]:
    """Return every pattern of communication on every wiring."""
    return [(pattern, wiring) for wiring in (STAR, ISLANDS) for pattern in PATTERNS]


def _patterns() -> Iterator[MiniGridCase]:
    for pattern, wiring in places():
        for policy in (*SELECTED, *PATTERN_RIVALS):
            yield selected(policy, PATTERN_BSBW, pattern, wiring)


def _wirings() -> Iterator[MiniGridCase]:
    for policy in SELECTED:
        for bsbw in ISLAND_BSBWS:
            for wiring in (STAR, ISLANDS):
                yield selected(policy, bsbw, wiring=wiring)
