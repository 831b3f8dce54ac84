"""The experiments by name. Each is imported at its first use: some need libraries that take long to load."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from koala.study import Experiment

# name -> (module, the class of the experiment)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "calibrate": ("koala_papers.calibrate.study", "Calibrate"),
    "heterogeneous": ("koala_papers.heterogeneous.study", "Heterogeneous"),
    "koala2005": ("koala_papers.koala2005.study", "Koala2005"),
    "koala2006": ("koala_papers.koala2006.study", "Koala2006"),
    "koala2006-map": ("koala_papers.koala2006.sensitivity", "Sensitivity"),
    "live2005": ("koala_papers.live2005.study", "Live2005"),
    "live2006": ("koala_papers.live2006.study", "Live2006"),
    "minigrid": ("koala_papers.minigrid.study", "MiniGridStudy"),
    "planning": ("koala_papers.planning.study", "Planning"),
    "wase": ("koala_papers.wase.study", "WaseStudy"),
}


class UnknownExperimentError(ValueError):
    """There is no experiment of this name."""

    def for_user(self) -> str:
        """Return the name, and the existing ones."""
        return str(self)


def find(name: str) -> Experiment[Any]:
    """Return the experiment of this name, or raise UnknownExperimentError."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnknownExperimentError(
            f"{name}: there is no experiment of that name; {hint}There are: {', '.join(sorted(EXPERIMENTS))}"
        )
    module, attribute = EXPERIMENTS[name]
    found: Experiment[Any] = getattr(importlib.import_module(module), attribute)()
    return found


def experiments() -> list[Experiment[Any]]:
    """Return all experiments, by name."""
    return [find(name) for name in sorted(EXPERIMENTS)]
