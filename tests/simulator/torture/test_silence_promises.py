"""The promise about silent sites is broken where a silence closes none."""

from __future__ import annotations

import pytest

from koala.core.state.site_belief import SiteBelief
from koala.simulator.torture.silence_promises import NOT_AT_SILENT
from koala.simulator.torture.storms import draw_storm
from koala.simulator.torture.torture import weather

SEEDS_TO_FIND_A_DEFECT = 40


def test_a_scheduler_that_places_jobs_at_silent_sites_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SiteBelief, "is_closed", property(lambda site: site.drained or bool(site.lost)))
    assert NOT_AT_SILENT in (weather(draw_storm(seed)).broken for seed in range(SEEDS_TO_FIND_A_DEFECT))
