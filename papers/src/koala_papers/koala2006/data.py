"""The measurements of the experiment of 2006, by workload, policy and seed, ready to be compared and drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from koala.study import FinishedUnit, Interval, mean_interval

METRICS = ("response_s", "wait_s", "queue_s", "overhead_s", "execution_s", "clusters")

BySeed = dict[int, float]


class Koala2006Data:
    """All results. Everything is by the requested seed, even if a void run was repeated with another."""

    def __init__(self, results: Sequence[FinishedUnit], workloads: Sequence[str], policies: Sequence[str]) -> None:
        self.workloads = tuple(workloads)
        self.policies = tuple(policies)
        self._results = results
        self._by_place = {
            (finished.unit.work["workload"], finished.unit.work["seed"]): finished.result for finished in results
        }
        self.seeds = sorted({seed for _, seed in self._by_place})

    def _runs(self, workload: str, policies: Iterable[str]) -> Iterable[tuple[int, dict[str, Any]]]:
        for seed in self.seeds:
            result = self._by_place[workload, seed]
            for policy in policies:
                yield seed, result["policies"][policy]

    def metric(self, workload: str, policy: str, name: str) -> BySeed:
        """Return the mean over the jobs of each run."""
        return {seed: run["means"][name] for seed, run in self._runs(workload, [policy]) if run["means"]}

    def interval(self, workload: str, policy: str, name: str) -> Interval:
        """Return the mean over seeds of that."""
        return mean_interval(list(self.metric(workload, policy, name).values()))

    def cluster_shares(self, workload: str, policy: str) -> dict[int, Interval]:
        """Return by number of combined clusters the percentage of jobs."""
        shares: dict[int, list[float]] = defaultdict(list)
        runs = [run["clusters"] for _, run in self._runs(workload, [policy]) if run["clusters"]]
        for clusters in sorted({int(key) for run in runs for key in run}):
            for run in runs:
                shares[clusters].append(100.0 * run.get(str(clusters), 0) / sum(run.values()))
        return {clusters: mean_interval(values) for clusters, values in shares.items()}

    def clusters_by_size(self, workload: str, policy: str) -> dict[int, BySeed]:
        """Return by processors of a job the mean number of clusters that such jobs combined in each run."""
        found: dict[int, BySeed] = defaultdict(dict)
        for seed, run in self._runs(workload, [policy]):
            sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
            for key, (_, count) in run["execution_by_clusters"].items():
                _, processors, clusters = key.split("/")
                sums[int(processors)][0] += int(clusters) * count
                sums[int(processors)][1] += count
            for processors, (total, count) in sums.items():
                found[processors][seed] = total / count
        return dict(sorted(found.items()))

    def overhead_by_components(self, workload: str) -> dict[int, BySeed]:
        """Return by number of components the mean overhead of such jobs under all policies together, as in the
        paper."""
        grouped = self._grouped([workload], "overhead_by_components")
        return {int(components): by_seed for components, by_seed in sorted(grouped.items())}

    def execution_by_clusters(self) -> dict[tuple[str, int], dict[int, BySeed]]:
        """Return by application and size, and then by combined clusters, the mean execution time over everything
        run."""
        found: dict[tuple[str, int], dict[int, BySeed]] = defaultdict(dict)
        for key, by_seed in sorted(self._grouped(self.workloads, "execution_by_clusters").items()):
            application, processors, clusters = key.split("/")
            found[application, int(processors)][int(clusters)] = by_seed
        return dict(found)

    def _grouped(self, workloads: Iterable[str], name: str) -> dict[str, BySeed]:
        sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for workload in workloads:
            for seed, run in self._runs(workload, self.policies):
                for key, (total, count) in run[name].items():
                    sums[key, seed][0] += total
                    sums[key, seed][1] += count
        grouped: dict[str, BySeed] = defaultdict(dict)
        for (key, seed), (total, count) in sums.items():
            grouped[key][seed] = total / count
        return dict(grouped)

    def void_runs(self) -> dict[str, int]:
        """Return by workload how many runs were void and repeated."""
        void: Counter[str] = Counter(dict.fromkeys(self.workloads, 0))
        for finished in self._results:
            void[finished.unit.work["workload"]] += finished.result["void_runs"]
        return dict(void)

    def _outcomes(self, workload: str, policy: str) -> dict[str, int]:
        outcomes: Counter[str] = Counter()
        for _, run in self._runs(workload, [policy]):
            outcomes.update(run["outcomes"])
        return dict(sorted(outcomes.items()))

    def use(self, workload: str, policy: str, whose: str) -> Interval:
        """Return the share of the processors that "ours" or "others" kept busy."""
        return mean_interval([run["utilisation"][whose] for _, run in self._runs(workload, [policy])])

    def as_json(self) -> dict[str, Any]:
        """Return every number in the figures, and facts about the runs."""
        return {
            "seeds": self.seeds,
            "seeds_used": {
                workload: [self._by_place[workload, seed]["seed_used"] for seed in self.seeds]
                for workload in self.workloads
            },
            "void_runs_repeated": self.void_runs(),
            "workloads": {
                workload: {policy: self._summary(workload, policy) for policy in self.policies}
                for workload in self.workloads
            },
            "overhead_by_components_s": {
                workload: {
                    str(components): mean_interval(list(by_seed.values())).as_json()
                    for components, by_seed in self.overhead_by_components(workload).items()
                }
                for workload in self.workloads
            },
            "execution_by_clusters_s": {
                f"{application} {processors}": {
                    str(clusters): mean_interval(list(by_seed.values())).as_json()
                    for clusters, by_seed in by_clusters.items()
                }
                for (application, processors), by_clusters in self.execution_by_clusters().items()
            },
        }

    def _summary(self, workload: str, policy: str) -> dict[str, Any]:
        return {
            "outcomes": self._outcomes(workload, policy),
            **{name: self.interval(workload, policy, name).as_json() for name in METRICS},
            "clusters_distribution_percent": {
                str(clusters): interval.as_json()
                for clusters, interval in self.cluster_shares(workload, policy).items()
            },
            "utilisation": {whose: self.use(workload, policy, whose).as_json() for whose in ("ours", "others")},
        }
