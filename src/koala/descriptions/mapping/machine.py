"""What a description says of one machine, in a dendrogram as in a site of a grid."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from koala.descriptions.fields import Description, Fraction01, Number
from koala.model.quantities import QUANTITY_MAX, QUANTITY_MIN

Power = Annotated[Number, Field(ge=QUANTITY_MIN, le=QUANTITY_MAX)]

POWER_WORDS = "its nominal power, in MFlop/s"
LOAD_WORDS = "the part of it that others use now, from 0 to 1"


class MachineText(Description):
    """A machine."""

    power: Power = Field(description=POWER_WORDS)
    load: Fraction01 = Field(default=0.0, description=LOAD_WORDS)
