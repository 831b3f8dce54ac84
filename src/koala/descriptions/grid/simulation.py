"""The ``simulation`` parts of a grid file: their form, and the way to the values of ``koala.model.grid``.

That module documents their effect in the simulator, and has their defaults.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from koala.descriptions.fields import Count, CountOrZero, Description, Fraction01, Number, Seconds, SecondsAboveZero
from koala.descriptions.yaml.problems import wrong
from koala.model.grid import (
    AnswerFaults,
    Background,
    BandOver,
    GridSimulation,
    LocalScheduler,
    SiteFaults,
    SiteSimulation,
    Startup,
    TrafficSimulation,
)

# The most outages that one site's list may hold.
OUTAGES_MAX = 10_000

_BACKGROUND = Background()
_FAULTS = SiteFaults()
_STARTUP = Startup()
_ANSWERS = AnswerFaults()
_SITE = SiteSimulation()
_GRID = GridSimulation()
_TRAFFIC = TrafficSimulation()


class BackgroundText(Description):
    """A site's own users, and the dummy jobs that hold their load inside a band."""

    user_load: Fraction01 = Field(
        default=_BACKGROUND.user_load, description="the fraction of the site that its users ask for on average"
    )
    user_size_mean: Annotated[Number, Field(ge=1)] = Field(
        default=_BACKGROUND.user_size_mean, description="the mean processors of a user's job"
    )
    user_execution_mean_s: SecondsAboveZero = Field(
        default=_BACKGROUND.user_execution_mean_s, description="the mean seconds that a user's job runs"
    )
    band_low: Fraction01 = Field(default=_BACKGROUND.band_low, description="below this load dummy jobs are injected")
    band_high: Fraction01 = Field(default=_BACKGROUND.band_high, description="above this load dummy jobs are killed")
    void_after_s: Seconds = Field(
        default=_BACKGROUND.void_after_s,
        description="seconds for which all users together may want more than the bands before the run is void",
    )
    seed: CountOrZero | None = Field(
        default=_BACKGROUND.seed,
        description="draws the users, so that they are the same in every run; null draws them by the run's seed",
    )

    @model_validator(mode="after")
    def _band_is_in_order(self) -> BackgroundText:
        if self.band_low > self.band_high:
            key = "band_low" if "band_low" in self.model_fields_set else "band_high"
            raise wrong(
                f"band_low ({self.band_low:g}) is above band_high ({self.band_high:g})",
                "write a band_low of at most band_high",
                key,
            )
        return self


class SiteFaultsText(Description):
    """What goes wrong at a site."""

    component_failure: Fraction01 = Field(
        default=_FAULTS.component_failure,
        description="the chance that the site breaks a component started here before its application ends",
    )
    application_failure: Fraction01 = Field(
        default=_FAULTS.application_failure,
        description="the chance that the application of a component started here returns failure",
    )
    outages: Annotated[tuple[tuple[Seconds, Seconds], ...], Field(max_length=OUTAGES_MAX)] = Field(
        default=(), description="times at which the whole site is down, as [from, to] in seconds"
    )
    silences: Annotated[tuple[tuple[Seconds, Seconds], ...], Field(max_length=OUTAGES_MAX)] = Field(
        default=(),
        description="times at which the site cannot be reached and what it holds runs on, as [from, to] in seconds",
    )
    mean_time_between_outages_s: SecondsAboveZero | None = Field(
        default=None, description="mean seconds between outages that are drawn at random; null draws none"
    )
    outage_mean_s: SecondsAboveZero = Field(
        default=_FAULTS.outage_mean_s, description="mean seconds that a drawn outage lasts"
    )
    bad_nodes: CountOrZero = Field(
        default=_FAULTS.bad_nodes,
        description="nodes, drawn by the seed, on which every application ends at once with exit code 127",
    )
    node_processors: Count = Field(
        default=_FAULTS.node_processors, description="processors of one node, where there are bad ones"
    )

    @model_validator(mode="after")
    def _outages_end_after_they_start(self) -> SiteFaultsText:
        for key, what in (("outages", "outage"), ("silences", "silence")):
            for index, (start_s, end_s) in enumerate(getattr(self, key)):
                if end_s <= start_s:
                    raise wrong(
                        f"the {what} ends at {end_s:g} and starts at {start_s:g}",
                        "write [from, to] with from before to",
                        key,
                        index,
                    )
        return self


class StartupText(Description):
    """How long a component takes from the claim to the barrier.

    (base_s + per_component_s * (components - 1)) * (1 + load_factor * load) * jitter
    """

    base_s: Seconds = Field(default=_STARTUP.base_s, description="seconds for a job of one component")
    per_component_s: Seconds = Field(
        default=_STARTUP.per_component_s, description="seconds more for each further component"
    )
    load_factor: Annotated[Number, Field(ge=0)] = Field(
        default=_STARTUP.load_factor, description="how much a fully loaded site lengthens it: 1 doubles it"
    )
    jitter: Fraction01 = Field(
        default=_STARTUP.jitter, description="the result varies by up to this fraction, uniformly"
    )

    def startup(self) -> Startup:
        """Return the start-up times as a value of ``koala.model.grid``."""
        return Startup(**self.model_dump())


class SiteSimulationText(Description):
    """How a site behaves in a simulation."""

    local_scheduler: LocalScheduler = Field(
        default=_SITE.local_scheduler, description="how the site's own scheduler serves its queue"
    )
    background: BackgroundText | None = Field(
        default=None, description="the site's own users; null has none, {} those of the defaults"
    )
    faults: SiteFaultsText = Field(default=SiteFaultsText(), description="what goes wrong at the site")
    startup: StartupText | None = Field(
        default=None,
        description="how long components take here from the claim to the barrier; null is as in the whole grid",
    )

    def simulation(self) -> SiteSimulation:
        """Return the site's behaviour as a value of ``koala.model.grid``."""
        return SiteSimulation(
            local_scheduler=self.local_scheduler,
            background=None if self.background is None else Background(**self.background.model_dump()),
            faults=SiteFaults(**self.faults.model_dump()),
            startup=None if self.startup is None else self.startup.startup(),
        )


class AnswersText(Description):
    """What happens to messages between the scheduler and the sites."""

    late: Fraction01 = Field(default=_ANSWERS.late, description="the chance that a message is late")
    late_mean_s: SecondsAboveZero = Field(
        default=_ANSWERS.late_mean_s, description="the mean seconds that a late message takes"
    )
    twice: Fraction01 = Field(default=_ANSWERS.twice, description="the chance that a message comes twice")
    never: Fraction01 = Field(default=_ANSWERS.never, description="the chance that a message never comes")
    transfer_break: Fraction01 = Field(
        default=_ANSWERS.transfer_break, description="the chance that a transfer breaks"
    )


class TrafficText(Description):
    """What jobs at several sites really send, and when that is measured."""

    report_after_s: SecondsAboveZero = Field(
        default=_TRAFFIC.report_after_s,
        description="seconds after its start at which a component is measured, and again each time they have doubled",
    )
    factor_low: Annotated[Number, Field(ge=0)] = Field(
        default=_TRAFFIC.factor_low,
        description="the least of what a job sends, as a multiple of what it declares; drawn once for a name",
    )
    factor_high: Annotated[Number, Field(ge=0)] = Field(default=_TRAFFIC.factor_high, description="and the most")

    @model_validator(mode="after")
    def _factors_are_in_order(self) -> TrafficText:
        if self.factor_low > self.factor_high:
            key = "factor_low" if "factor_low" in self.model_fields_set else "factor_high"
            raise wrong(
                f"factor_low ({self.factor_low:g}) is above factor_high ({self.factor_high:g})",
                "write a factor_low of at most factor_high",
                key,
            )
        return self


class GridSimulationText(Description):
    """How the whole grid behaves in a simulation."""

    startup: StartupText = Field(
        default=StartupText(), description="how long components take from the claim to the barrier"
    )
    answers: AnswersText = Field(default=AnswersText(), description="what happens to messages")
    report_interval_s: Seconds = Field(
        default=_GRID.report_interval_s,
        description="seconds between a site's reports to the scheduler; 0 reports every change at once",
    )
    background_band: BandOver = Field(
        default=_GRID.background_band,
        description="of what dummy jobs hold the users' load inside the band: of each site, or of the whole grid",
    )
    heal_at_s: Seconds | None = Field(
        default=_GRID.heal_at_s, description="the time at which drawn faults stop; null never heals"
    )
    traffic: TrafficText | None = Field(
        default=None,
        description="what jobs really send between sites, and when that is measured; null: as they declare, never",
    )

    def simulation(self) -> GridSimulation:
        """Return the grid's behaviour as a value of ``koala.model.grid``."""
        return GridSimulation(
            startup=self.startup.startup(),
            answers=AnswerFaults(**self.answers.model_dump()),
            report_interval_s=self.report_interval_s,
            background_band=self.background_band,
            heal_at_s=self.heal_at_s,
            traffic=None if self.traffic is None else TrafficSimulation(**self.traffic.model_dump()),
        )
