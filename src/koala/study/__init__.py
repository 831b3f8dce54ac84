"""Studies: policies with the same jobs on the same grids under the same seeds, judged by confidence intervals.

``read_study`` reads a study file, and ``run_study`` runs it to a report. An ``Experiment`` is a custom study: its
units of work, its claims and its figures in Python, which ``run_to_report`` runs. Figures need matplotlib and
intervals scipy, see the extra ``study``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koala.study.comparison.matrix import trace_of
    from koala.study.comparison.study import Study, read_study, run_study
    from koala.study.frame.claims import ClaimVerdict, Comparison, PaperClaim, above, below, judge, measured, within
    from koala.study.frame.experiment import (
        Conclusion,
        Experiment,
        FinishedUnit,
        ParameterError,
        Parameters,
        ReportTable,
        SingleRun,
        Unit,
        parameters_from,
        single_from,
    )
    from koala.study.frame.figures import (
        NEUTRAL,
        ReportFigure,
        Scale,
        Series,
        Style,
        bands,
        bars,
        error_bars,
        grouped_bars,
        legend,
        lines,
        new_figure,
        new_grid,
        style_of,
        surface,
    )
    from koala.study.frame.measures import done_rows, means, number, varied
    from koala.study.frame.report import check_folder, first_look
    from koala.study.frame.statistics import CONFIDENCE, Interval, mean_interval, paired_difference
    from koala.study.frame.whole_run import SeedRange, WholeRun, run_to_report

__all__ = [
    "CONFIDENCE",
    "NEUTRAL",
    "ClaimVerdict",
    "Comparison",
    "Conclusion",
    "Experiment",
    "FinishedUnit",
    "Interval",
    "PaperClaim",
    "ParameterError",
    "Parameters",
    "ReportFigure",
    "ReportTable",
    "Scale",
    "SeedRange",
    "Series",
    "SingleRun",
    "Study",
    "Style",
    "Unit",
    "WholeRun",
    "above",
    "bands",
    "bars",
    "below",
    "check_folder",
    "done_rows",
    "error_bars",
    "first_look",
    "grouped_bars",
    "judge",
    "legend",
    "lines",
    "mean_interval",
    "means",
    "measured",
    "new_figure",
    "new_grid",
    "number",
    "paired_difference",
    "parameters_from",
    "read_study",
    "run_study",
    "run_to_report",
    "single_from",
    "style_of",
    "surface",
    "trace_of",
    "varied",
    "within",
]

# These names are imported at their first use.
_HOME = {
    "CONFIDENCE": "study.frame.statistics",
    "ClaimVerdict": "study.frame.claims",
    "Comparison": "study.frame.claims",
    "Conclusion": "study.frame.experiment",
    "Experiment": "study.frame.experiment",
    "FinishedUnit": "study.frame.experiment",
    "Interval": "study.frame.statistics",
    "NEUTRAL": "study.frame.figures",
    "PaperClaim": "study.frame.claims",
    "ParameterError": "study.frame.experiment",
    "Parameters": "study.frame.experiment",
    "ReportFigure": "study.frame.figures",
    "ReportTable": "study.frame.experiment",
    "Scale": "study.frame.figures",
    "SeedRange": "study.frame.whole_run",
    "Series": "study.frame.figures",
    "SingleRun": "study.frame.experiment",
    "Study": "study.comparison.study",
    "Style": "study.frame.figures",
    "Unit": "study.frame.experiment",
    "WholeRun": "study.frame.whole_run",
    "above": "study.frame.claims",
    "bands": "study.frame.figures",
    "bars": "study.frame.figures",
    "below": "study.frame.claims",
    "check_folder": "study.frame.report",
    "done_rows": "study.frame.measures",
    "error_bars": "study.frame.figures",
    "first_look": "study.frame.report",
    "grouped_bars": "study.frame.figures",
    "judge": "study.frame.claims",
    "legend": "study.frame.figures",
    "lines": "study.frame.figures",
    "mean_interval": "study.frame.statistics",
    "means": "study.frame.measures",
    "measured": "study.frame.claims",
    "new_figure": "study.frame.figures",
    "new_grid": "study.frame.figures",
    "number": "study.frame.measures",
    "paired_difference": "study.frame.statistics",
    "parameters_from": "study.frame.experiment",
    "read_study": "study.comparison.study",
    "run_study": "study.comparison.study",
    "run_to_report": "study.frame.whole_run",
    "single_from": "study.frame.experiment",
    "style_of": "study.frame.figures",
    "surface": "study.frame.figures",
    "trace_of": "study.comparison.matrix",
    "varied": "study.frame.measures",
    "within": "study.frame.claims",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and should report others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"koala.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
