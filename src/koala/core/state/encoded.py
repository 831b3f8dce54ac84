"""What every class of the core's state has in common: its fields are plain values that msgspec encodes as they are.

What follows from the fields, and what refers to other objects, has slots in a base class: it is not encoded, and
``koala.core.restore`` works it out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar, dataclass_transform

AnyClass = TypeVar("AnyClass")

INFINITY = float("inf")
# A time that may be infinite. JSON has no infinity: it is encoded as null, and ``known_time`` reads it.
if TYPE_CHECKING:
    Time: TypeAlias = float
else:
    Time = float | None


@dataclass_transform(field_specifiers=(field,))
def encoded(cls: type[AnyClass]) -> type[AnyClass]:
    """Make a class of its fields. Its objects change, and each equals only itself."""
    return dataclass(slots=True, eq=False)(cls)


def known_time(decoded: float | None) -> float:
    """A time as it was before it was encoded."""
    return INFINITY if decoded is None else decoded
