"""The ``communication`` part of a job: its form in YAML, and the way to a value of
``koala.model.request`` and back."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from koala.descriptions.fields import Bandwidth, Description, Fraction01
from koala.descriptions.job.invalid import told
from koala.descriptions.yaml.problems import wrong
from koala.model.request import CUBE_DIMENSIONS_MAX, Communication, InvalidRequestError, Pattern

_DEFAULT = Communication(pattern=Pattern.NONE)

PATTERN_WORDS = (
    "who talks to whom: all-to-all, ring, cube (neighbours in a torus), master-worker (all with the first) or none"
)
BISECTION_WORDS = "the bandwidth over the middle of the job, cut into halves, in megabits per second"
PER_PROCESSOR_WORDS = "the bandwidth of each processor, instead of bisection_mbit_s"
SHARE_WORDS = "the part of its execution time on one site that is communication, which narrow links stretch"
DIMENSIONS_WORDS = "of a cube: in how many dimensions its processors have neighbours"

Dimensions = Annotated[int, Field(strict=True, ge=1, le=CUBE_DIMENSIONS_MAX)]


class CommunicationText(Description):
    """How the processors of a job talk to each other, which loads the links between its sites."""

    pattern: Pattern = Field(default=Pattern.ALL_TO_ALL, description=PATTERN_WORDS)
    bisection_mbit_s: Bandwidth | None = Field(default=None, description=BISECTION_WORDS)
    per_processor_mbit_s: Bandwidth | None = Field(default=None, description=PER_PROCESSOR_WORDS)
    share: Fraction01 = Field(default=_DEFAULT.share, description=SHARE_WORDS)
    dimensions: Dimensions = Field(default=_DEFAULT.dimensions, description=DIMENSIONS_WORDS)

    @model_validator(mode="after")
    def _is_valid(self) -> CommunicationText:
        try:
            self.communication()
        except InvalidRequestError as error:
            at = (error.field,) if error.field in self.model_fields_set else ()
            raise wrong(*told(error, {}), *at) from None
        return self

    def communication(self) -> Communication:
        """Return the communication as a value of ``koala.model.request``."""
        return Communication(**self.model_dump())


def communication_values(communication: Communication) -> dict[str, Any]:
    """Return values that are read as this communication."""
    values: dict[str, Any] = {"pattern": str(communication.pattern)}
    for field in ("bisection_mbit_s", "per_processor_mbit_s", "share", "dimensions"):
        value = getattr(communication, field)
        if value != getattr(_DEFAULT, field):
            values[field] = value
    return values
