"""The measurements of the mapping study, one column for each method and measure, ready to be compared and drawn.

A number of the study is a mean over the trials of a seed, and its interval is over seeds. Trials of one seed share
graphs and grids, so their spread has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from koala.study import FinishedUnit, Interval, mean_interval
from koala_papers.wase.parameters import WaseParameters
from koala_papers.wase.trials import MEASURES, METHODS, trials_of

if TYPE_CHECKING:
    import numpy

    Column = numpy.ndarray[Any, numpy.dtype[Any]]

TRIALS = "trials"
BOUND = "bound"
AFFINITY = "affinity"
PIPELINE = "pipeline"


class WaseData:
    """The results with one reading of the ranges of cluster sizes, by default the first of the parameters.

    A column has a place for each trial; ``seed`` contains the seeds of all; a mask selects trials.
    """

    def __init__(self, parameters: WaseParameters, results: Sequence[FinishedUnit], bands: str | None = None) -> None:
        self.parameters = parameters
        self.bands = parameters.bands[0] if bands is None else bands
        units = [finished for finished in results if finished.unit.work["kind"] == TRIALS]
        self.seeds = sorted({finished.unit.work["seed"] for finished in units})
        self.bounds = [
            {"seed": unit.work["seed"], "tasks": unit.work["tasks"], **row}
            for unit, result in results
            if unit.work["kind"] == BOUND
            for row in result["rows"]
        ]
        (self.pipeline,) = (result for unit, result in results if unit.work["kind"] == PIPELINE)
        self.clusters = [
            {"tasks": unit.work["tasks"], "cluster_size": place, **described}
            for unit, result in units
            for place, described in enumerate(result["bands"][self.bands]["clusters"])
        ]
        # The change of the minimum affinity from the smallest grids to the largest, in per cent, by tasks and seed.
        self.affinity_changes: dict[int, dict[int, float]] = {}
        for unit, result in results:
            if unit.work["kind"] == AFFINITY and (change := result["change"][self.bands]) is not None:
                self.affinity_changes.setdefault(unit.work["tasks"], {})[unit.work["seed"]] = change
        self._read_places(units)
        self._read_methods(units)

    def _read_places(self, units: Sequence[FinishedUnit]) -> None:
        """Read the places of the trials in the columns."""
        import numpy

        trials = trials_of(self.parameters)
        works = [finished.unit.work for finished in units]

        def of_units(name: str) -> Column:
            return numpy.repeat(numpy.array([work[name] for work in works]), len(trials))

        def of_trials(place: int) -> Column:
            return numpy.tile(numpy.array([trial[place] for trial in trials]), len(works))

        self._places = {
            "seed": of_units("seed"),
            "tasks": of_units("tasks"),
            "number": of_units("number"),
            "cluster_size": of_trials(0),
            "mcr": of_trials(1),
            "machines": of_trials(2),
            "machines_per_lan": of_trials(3),
        }
        self.seed = self._places["seed"]
        self._by_seed = numpy.argsort(self.seed, kind="stable")
        self.count = len(trials) * len(works)

    def _read_methods(self, units: Sequence[FinishedUnit]) -> None:
        import numpy

        self.impossible = numpy.array([each for _, result in units for each in result["impossible"]], dtype=bool)
        self._columns: dict[tuple[str, str], Column] = {}
        tables = [result["bands"][self.bands]["methods"] for _, result in units]
        for name in tables[0] if tables else METHODS:
            for measure in MEASURES:
                values = [value for table in tables for value in table[name][measure]]
                # JSON's null becomes nan.
                self._columns[name, measure] = numpy.array(values, dtype=float)

    def column(self, method: str, measure: str) -> Column:
        """Return a measure over all trials, nan where the method found no mapping."""
        return self._columns[method, measure]

    def failed(self, method: str) -> Column:
        """Return over all trials 1 where the method found no mapping and 0 elsewhere."""
        import numpy

        return numpy.isnan(self._columns[method, "lan_hit"]).astype(float)

    def where(self, **places: float) -> Column:
        """Return the trials with these values of seed, tasks, number, cluster_size, mcr, machines or
        machines_per_lan."""
        import numpy

        chosen = numpy.ones(self.count, dtype=bool)
        for name, value in places.items():
            chosen &= self._places[name] == value
        return chosen

    def by_seed(self, values: Column, chosen: Column | None = None) -> dict[int, float]:
        """Return by seed the mean of the existing values among the selected trials; seeds without any are left
        out."""
        import numpy

        there = ~numpy.isnan(values) if chosen is None else chosen & ~numpy.isnan(values)
        places = self._by_seed[there[self._by_seed]]
        those = values[places]
        ends = numpy.searchsorted(self.seed[places], self.seeds, side="right").tolist()
        return {
            seed: float(numpy.add.reduce(those[begin:end])) / (end - begin)
            for seed, begin, end in zip(self.seeds, [0, *ends[:-1]], ends, strict=True)
            if end > begin
        }

    def interval(self, values: Column, chosen: Column | None = None) -> Interval | None:
        """Return the mean over seeds of that, or None without values."""
        found = list(self.by_seed(values, chosen).values())
        return mean_interval(found) if found else None

    def difference(self, first: str, second: str, measure: str, chosen: Column | None = None) -> Interval | None:
        """Return the first method minus the second, trial by trial, on those that both mapped."""
        return self.interval(self.column(first, measure) - self.column(second, measure), chosen)

    def more_failures(self, first: str, second: str, chosen: Column | None = None) -> Interval | None:
        """Return the first method's share of failures minus the second's, in points of a per cent."""
        return self.interval(100.0 * (self.failed(first) - self.failed(second)), chosen)

    def as_json(self) -> dict[str, Any]:
        """Return every number in the figures, by method, and clusters by size."""
        parameters = self.parameters
        return {
            "bands": self.bands,
            "seeds": self.seeds,
            "applications": parameters.applications,
            "grids": parameters.grids,
            "trials_per_seed": parameters.applications * parameters.grids,
            "trials": self.count,
            "impossible": self._json(self.impossible.astype(float)),
            "methods": {name: self._summary(name) for name in dict.fromkeys(name for name, _ in self._columns)},
            "clusters": self._cluster_sizes(),
        }

    def _json(self, values: Column, chosen: Column | None = None) -> dict[str, Any] | None:
        interval = self.interval(values, chosen)
        return None if interval is None else interval.as_json()

    def _summary(self, method: str) -> dict[str, Any]:
        parameters = self.parameters
        axes: dict[str, Sequence[float]] = {
            "tasks": parameters.tasks,
            "cluster_size": range(len(parameters.cluster_sizes)),
            "mcr": parameters.mcr,
            "machines": parameters.machines,
            "machines_per_lan": parameters.machines_per_lan,
        }
        columns = {"failed": self.failed(method)}
        columns |= {name: self.column(method, name) for name in MEASURES}
        return {
            name: {
                "all": self._json(values),
                **{
                    f"by_{axis}": {str(place): self._json(values, self.where(**{axis: place})) for place in places}
                    for axis, places in axes.items()
                },
            }
            for name, values in columns.items()
        }

    def _cluster_sizes(self) -> list[dict[str, Any]]:
        """Return by tasks and wanted size the results of clustering, on average over graphs."""
        rows = []
        for tasks in self.parameters.tasks:
            for place, wanted in enumerate(self.parameters.cluster_sizes):
                those = [row for row in self.clusters if row["tasks"] == tasks and row["cluster_size"] == place]
                means = {
                    name: sum(row[name] for row in those) / len(those)
                    for name in ("mean_size", "largest", "clusters", "reached", "cpu_s")
                    if those
                }
                rows.append({"tasks": tasks, "wanted": list(wanted), **means})
        return rows
