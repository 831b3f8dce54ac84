"""The output of an experiment: ``report.json`` for programs, ``report.html`` for people, and every figure.

The page is one file: it contains its figures, fetches nothing, and runs no script. The same results give the same
files, byte for byte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, StrictUndefined

from koala.study.frame.claims import ClaimVerdict, Comparison, PaperClaim, measured
from koala.study.frame.experiment import Experiment, P, as_text
from koala.study.frame.figures import ReportFigure, save
from koala.study.frame.looks import Judged
from koala.version import __version__

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
_TEMPLATE = "report.html.j2"
# The part of matplotlib's output before the drawing itself: useless inside a page.
_PREAMBLE = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')


class OtherReportError(ValueError):
    """The folder contains the report of another experiment, which would be mixed with this one's."""

    def for_user(self) -> str:
        """Return which folder, its content, and what to do."""
        return str(self)


class WrittenReport(NamedTuple):
    """The place of a report, and its content."""

    report: dict[str, Any]
    json_path: Path
    html_path: Path
    figures: tuple[Path, ...]


class _Shown(NamedTuple):
    """A figure on the page."""

    name: str
    title: str
    caption: str
    svg: str


def check_folder(folder: Path, experiment: str) -> None:
    """Raise OtherReportError if the folder contains the report of another experiment.

    >>> from pathlib import Path
    >>> from koala.study import check_folder
    >>> check_folder(Path("results"), "spread")
    """
    path = folder / REPORT_JSON
    try:
        other = msgspec.json.decode(path.read_bytes(), type=dict[str, Any]).get("experiment")
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return
    if other != experiment:
        raise OtherReportError(
            f"{folder}: the report of {other} is there, and {experiment}'s would be mixed with it; "
            "name another folder with --out"
        )


def first_look(experiment: Experiment[Any], seen: Judged) -> str:
    """Return a warning if a run has too few seeds for verdicts or too little work in each; otherwise empty.

    >>> from koala.study import first_look, read_study, run_study
    >>> text = "{study: s, policies: [WF], grids: [das2], workloads: [{workload: koala2006-w1, jobs: 5}]}"
    >>> study = read_study("s", text=text)
    >>> first_look(study, run_study(study, "results", quick=True, processes=1).seen)[:8]
    '3 seeds '
    """
    if seen.seeds < experiment.seeds_min:
        least = experiment.seeds_min
        return f"{seen.seeds} seeds are a first look: {experiment.claim_word}s are judged from at least {least}"
    if any(claim.first_look for claim in seen.conclusion.claims):
        return "this is a first look, with less work for each seed: it decides nothing"
    return ""


def verdict_counts(claims: Sequence[PaperClaim]) -> str:
    """Return how many claims have each verdict, in words."""
    words = {ClaimVerdict.HOLDS: "hold", ClaimVerdict.CONTRARY: "contrary", ClaimVerdict.UNDECIDED: "undecided"}
    counts = {said: sum(claim.verdict is verdict for claim in claims) for verdict, said in words.items()}
    return ", ".join(f"{count} {said}" for said, count in counts.items() if count)


def write_report(
    experiment: Experiment[P], parameters: P, seed: int, seeds_max: int, seen: Judged, folder: Path
) -> WrittenReport:
    """Write everything into the folder, which is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    conclusion = seen.conclusion
    report = {
        "experiment": experiment.name,
        "parameters": {
            "seed": seed,
            "repetitions": seen.looks[0].seeds,
            "seeds_max": seeds_max,
            **msgspec.to_builtins(parameters),
            "koala": __version__,
        },
        "judged": {"seeds": seen.seeds, **seen.as_json()},
        "results": conclusion.results,
        "claims": [claim.as_json() for claim in conclusion.claims],
    }
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / REPORT_JSON).write_text(text, encoding="utf-8")
    for name, content in conclusion.files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    files = [path for picture in conclusion.figures for path in save(picture, folder)]
    page = _page(experiment, report, seen, folder)
    (folder / REPORT_HTML).write_text(page, encoding="utf-8")
    return WrittenReport(report, folder / REPORT_JSON, folder / REPORT_HTML, tuple(files))


def _page(experiment: Experiment[P], report: dict[str, Any], seen: Judged, folder: Path) -> str:
    conclusion = seen.conclusion
    template = (resources.files("koala.study.frame") / _TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        experiment=experiment,
        claims=conclusion.claims,
        counts=verdict_counts(conclusion.claims),
        seen=seen,
        measured=measured,
        strip=_strip,
        figures=_inline(conclusion.figures, folder),
        parameters=[(name, as_text(value)) for name, value in report["parameters"].items()],
        notes=conclusion.notes,
        tables=conclusion.tables,
        warning=first_look(experiment, seen),
        version=__version__,
        command=experiment.command(report["parameters"]),
    )


def _inline(pictures: Sequence[ReportFigure], folder: Path) -> list[_Shown]:
    """Return the saved figures, each with ids of its own, so that none refers into another."""
    shown = []
    for picture in pictures:
        svg = (folder / f"{picture.name}.svg").read_text(encoding="utf-8")
        svg = _METADATA.sub("", _PREAMBLE.sub("", svg))
        svg = _ID.sub(rf"\g<1>{picture.name}-", svg)
        shown.append(_Shown(picture.name, picture.title, picture.caption, svg))
    return shown


class _Strip(NamedTuple):
    """An interval against its bounds, all in percent of the width of a drawing."""

    low: float
    width: float
    mean: float
    bounds: tuple[float, ...]


def _strip(comparison: Comparison) -> _Strip | None:
    """Return the positions of the interval, its mean and the bounds on a line, or None if the interval has no
    ends."""
    interval = comparison.interval
    if not interval.bounded:
        return None
    bounds = [bound for bound in (comparison.least, comparison.most) if math.isfinite(bound)]
    places = [interval.low, interval.high, *bounds]
    least, most = min(places), max(places)
    if least == most:
        return _Strip(50.0, 0.0, 50.0, tuple(50.0 for _ in bounds))

    def at(value: float) -> float:
        return round(4.0 + 92.0 * (value - least) / (most - least), 1)

    return _Strip(
        at(interval.low),
        round(at(interval.high) - at(interval.low), 1),
        at(interval.mean),
        tuple(at(bound) for bound in bounds),
    )
