"""Where generated jobs arrive and how they communicate, drawn from streams of their own.

What is drawn here changes none of the other draws: the same seed gives the same arrivals, sizes and execution times
whatever the bandwidth.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from koala.descriptions.workload.communication import BandwidthsText, GeneratedCommunicationText
from koala.model.request import Communication, SiteName
from koala.simulator.workloads.draws import Choice, Constant, Uniform


class HomeDraw:
    """The site where each job arrives: by weight, or all sites alike where there are none."""

    def __init__(self, weights: dict[SiteName, float], sites: Sequence[SiteName]) -> None:
        self._sites = list(weights) or list(sites)
        self._choice = Choice([weights.get(site, 1.0) for site in self._sites])

    def draw(self, rng: random.Random) -> SiteName:
        """The home of the next job."""
        return self._sites[self._choice.draw(rng)]


class CommunicationDraw:
    """How each job communicates. Every draw is made for every job, whether it matters to it or not."""

    def __init__(self, text: GeneratedCommunicationText) -> None:
        self._patterns = list(text.pattern)
        self._pattern = Choice(list(text.pattern.values()))
        self._bisection = text.bisection_mbit_s
        self._per_processor = text.per_processor_mbit_s
        self._share = text.share
        self._dimensions = text.dimensions

    @property
    def is_continuous(self) -> bool:
        """Whether hardly two jobs draw the same, so that it does not pay to remember what was drawn."""
        bandwidths = self._bisection or self._per_processor
        return bandwidths is not None and bandwidths.uniform is not None

    def draw(self, rng: random.Random) -> Communication:
        """That of the next job."""
        return Communication(
            pattern=self._patterns[self._pattern.draw(rng)],
            bisection_mbit_s=_bandwidth(self._bisection, rng),
            per_processor_mbit_s=_bandwidth(self._per_processor, rng),
            share=self._share,
            dimensions=self._dimensions,
        )


def _bandwidth(text: BandwidthsText | None, rng: random.Random) -> float | None:
    if text is None:
        return None
    if text.uniform is not None:
        return Uniform(*text.uniform).draw(rng)
    if text.choices is not None:
        return text.choices[int(rng.random() * len(text.choices))]
    assert text.constant is not None, "checked when it was read"
    return Constant(text.constant).draw(rng)
