"""The traffic of generated jobs, and where they arrive: the form of both in a workload file."""

from __future__ import annotations

import enum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from koala.descriptions.errors import shown
from koala.descriptions.fields import (
    Bandwidth,
    Description,
    Fraction01,
    Name,
    Number,
    as_constant,
    exactly_one,
    in_order,
)
from koala.descriptions.job.communication import (
    BISECTION_WORDS,
    DIMENSIONS_WORDS,
    PATTERN_WORDS,
    PER_PROCESSOR_WORDS,
    SHARE_WORDS,
    Dimensions,
)
from koala.descriptions.yaml.problems import wrong
from koala.model.request import Communication, Pattern

_DEFAULT = Communication(pattern=Pattern.NONE)

Weight = Annotated[Number, Field(gt=0)]


class BandwidthsText(Description):
    """A bandwidth in megabits per second: the same for all jobs, or drawn for each."""

    constant: Bandwidth | None = Field(default=None, description="always this; a number alone means the same")
    uniform: tuple[Bandwidth, Bandwidth] | None = Field(default=None, description="[least, most], all equally likely")
    choices: Annotated[tuple[Bandwidth, ...], Field(min_length=1)] | None = Field(
        default=None, description="one of these, all equally likely"
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> BandwidthsText:
        exactly_one(self, "constant", "uniform", "choices")
        in_order(self.uniform)
        return self


Bandwidths = Annotated[BandwidthsText, BeforeValidator(as_constant, json_schema_input_type=float | BandwidthsText)]


def _pattern_alone(value: Any) -> Any:
    """Read a pattern alone as one that is always drawn."""
    return {value: 1.0} if isinstance(value, str) else value


Patterns = Annotated[
    dict[Pattern, Weight],
    Field(min_length=1),
    BeforeValidator(_pattern_alone, json_schema_input_type=Pattern | dict[Pattern, Weight]),
]


class GeneratedCommunicationText(Description):
    """How the processors of generated jobs talk to each other, which loads the links between their sites."""

    pattern: Patterns = Field(
        default={Pattern.ALL_TO_ALL: 1.0},
        description=f"{PATTERN_WORDS}; or several with weights, such as {{ring: 2, all-to-all: 1}}",
    )
    bisection_mbit_s: Bandwidths | None = Field(
        default=None, description=f"{BISECTION_WORDS}, or {{uniform: [200, 900]}}, or {{choices: [200, 900]}}"
    )
    per_processor_mbit_s: Bandwidths | None = Field(default=None, description=PER_PROCESSOR_WORDS)
    share: Fraction01 = Field(default=_DEFAULT.share, description=SHARE_WORDS)
    dimensions: Dimensions = Field(default=_DEFAULT.dimensions, description=DIMENSIONS_WORDS)

    @model_validator(mode="after")
    def _has_one_bandwidth(self) -> GeneratedCommunicationText:
        if set(self.pattern) != {Pattern.NONE} or self.bisection_mbit_s is not None:
            exactly_one(self, "bisection_mbit_s", "per_processor_mbit_s")
        return self


class HomeWord(enum.StrEnum):
    """Where jobs arrive, where it is not said site by site."""

    DRAWN = "drawn"
    NONE = "none"


def _home(value: Any) -> Any:
    """Read a word, or a weight for each site; an unknown word is reported as such."""
    if value is None or value == HomeWord.NONE:
        return None
    if isinstance(value, str):
        if value != HomeWord.DRAWN:
            raise wrong(
                f"{shown(value)} says nothing here", "write drawn, none, or sites with weights: {vu: 2, delft: 1}"
            )
        return {}
    if not value:
        raise wrong("there are no sites in it", "write drawn for all sites alike, or sites with weights")
    return value


# None: the jobs have no home; without sites: one of the grid's, all alike.
Home = Annotated[
    dict[Name, Weight] | None,
    BeforeValidator(_home, json_schema_input_type=HomeWord | dict[Name, Weight] | None),
]
