"""The common property of all experiments of the papers: ``koala experiment`` runs them."""

from __future__ import annotations

from typing import TypeVar

from koala.study import Experiment, Parameters

P = TypeVar("P", bound=Parameters)


class PaperExperiment(Experiment[P]):
    """An experiment that ``koala experiment run`` runs by its name."""

    verb = "koala experiment run"
