"""The experiments by name. Each is imported when it is asked for, since some need libraries of an extra."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from koala.experiments.frame.experiment import Experiment

# name -> (module, the class of the experiment)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "calibrate": ("koala.experiments.calibrate.study", "Calibrate"),
    "heterogeneous": ("koala.experiments.heterogeneous.study", "Heterogeneous"),
    "koala2005": ("koala.experiments.koala2005.study", "Koala2005"),
    "koala2006": ("koala.experiments.koala2006.study", "Koala2006"),
    "koala2006-map": ("koala.experiments.koala2006.sensitivity", "Sensitivity"),
    "live2005": ("koala.experiments.live2005.study", "Live2005"),
    "live2006": ("koala.experiments.live2006.study", "Live2006"),
    "minigrid": ("koala.experiments.minigrid.study", "MiniGridStudy"),
    "planning": ("koala.experiments.planning.study", "Planning"),
    "wase": ("koala.experiments.wase.study", "WaseStudy"),
}


class UnknownExperimentError(ValueError):
    """There is no experiment of this name."""

    def for_user(self) -> str:
        """The name, and those that there are."""
        return str(self)


def find(name: str) -> Experiment[Any]:
    """The experiment of this name, or UnknownExperimentError."""
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
    """All of them, by name."""
    return [find(name) for name in sorted(EXPERIMENTS)]
