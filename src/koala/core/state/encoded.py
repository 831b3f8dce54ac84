"""What every class of the core's state has in common: its fields are plain values that msgspec encodes as they are.

What follows from the fields, and what refers to other objects, has slots in a base class: it is not encoded, and
``koala.core.restore`` works it out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, dataclass_transform

AnyClass = TypeVar("AnyClass")

INFINITY = float("inf")
# A time that may be infinite. JSON has no infinity: it is encoded as null, and ``known_time`` reads it.
if TYPE_CHECKING:
    Time: TypeAlias = float
else:
    Time = float | None


class _NoEntries(dict[Any, Any]):
    """An empty dict that many objects share: whoever has an entry puts a dict of its own in its place."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # it never changes, which a default must not

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this empty dict is shared; put a new one in its place")

    __setitem__ = setdefault = update = __ior__ = _refuse


class _NoItems(list[Any]):
    """An empty list that many objects share: whoever has an item puts a list of its own in its place."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # it never changes, which a default must not

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this empty list is shared; put a new one in its place")

    append = extend = insert = __iadd__ = __setitem__ = _refuse


# What fields are by default that few objects ever fill: a dozen empty ones for each job would take time and memory.
NO_ENTRIES: dict[Any, Any] = _NoEntries()
NO_ITEMS: list[Any] = _NoItems()


@dataclass_transform(field_specifiers=(field,))
def encoded(cls: type[AnyClass]) -> type[AnyClass]:
    """Make a class of its fields. Its objects change, and each equals only itself."""
    return dataclass(slots=True, eq=False)(cls)


def known_time(decoded: float | None) -> float:
    """A time as it was before it was encoded."""
    return INFINITY if decoded is None else decoded
