"""The form that all state classes of the core share: their fields are plain values that msgspec encodes as they are.

Values that follow from the fields, and references to other objects, have slots in a base class: they are not encoded,
and ``koala.core.records.loading`` derives them again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, dataclass_transform

AnyClass = TypeVar("AnyClass")

INFINITY = float("inf")
# A time that may be infinite. JSON has no infinity: it is encoded as null, and ``known_time`` reads it.
if TYPE_CHECKING:
    Time: TypeAlias = float
else:
    Time = float | None


class _NoEntries(dict[Any, Any]):
    """An empty dict that many objects share: an object with an entry replaces it with a dict of its own."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # it never changes, which a default must not

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this empty dict is shared; put a new one in its place")

    __setitem__ = setdefault = update = __ior__ = _refuse


class _NoItems(list[Any]):
    """An empty list that many objects share: an object with an item replaces it with a list of its own."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # it never changes, which a default must not

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this empty list is shared; put a new one in its place")

    append = extend = insert = __iadd__ = __setitem__ = _refuse


# Defaults of fields that few objects ever fill: a dozen empty containers for each job would cost time and memory.
NO_ENTRIES: dict[Any, Any] = _NoEntries()
NO_ITEMS: list[Any] = _NoItems()


@dataclass_transform(field_specifiers=(field,))
def encoded(cls: type[AnyClass]) -> type[AnyClass]:
    """Make a class of its fields. Its objects are mutable, and each equals only itself."""
    made: Any = dataclass(slots=True, eq=False)(cls)
    own = fields(made)
    names = tuple([each.name for each in own])
    defaults = tuple([each.default if each.default_factory is MISSING else each.default_factory() for each in own])
    # Two extra names ensure that there is always more than one value.
    _FIELDS[made] = names, attrgetter(*names, "__class__", "__class__"), defaults
    return made  # type: ignore[no-any-return]


# By class: its field names, a getter of their values, and the values in an object that has none of its own.
_FIELDS: dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]] = {}


def sparse(value: Any, without: Collection[str] = ()) -> Any:
    """Return the fields of an object that differ from their defaults, and its parts likewise, for an encoder."""
    names, values, defaults = _FIELDS[value.__class__]
    found = {
        name: own
        for name, own, default in zip(names, values(value), defaults, strict=False)
        if own is not default and own != default and name not in without
    }
    for name, own in found.items():
        if own.__class__ in _FIELDS:
            found[name] = sparse(own)
    return found


def names_of(cls: type[Any]) -> frozenset[str]:
    """Return the field names of a class."""
    return frozenset(_FIELDS[cls][0])


def known_time(decoded: float | None) -> float:
    """Return a time as it was before it was encoded."""
    return INFINITY if decoded is None else decoded
