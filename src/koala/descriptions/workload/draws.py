"""What the parts of a workload file that draw numbers share: how one says which of several ways is meant."""

from __future__ import annotations

from typing import Any

from koala.descriptions.fields import Description
from koala.descriptions.yaml.problems import wrong


def as_constant(value: Any) -> Any:
    """A number alone is a constant."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"constant": value}
    return value


def exactly_one(model: Description, *keys: str) -> None:
    """Raise for a validator where not exactly one of these is given."""
    given = [key for key in keys if getattr(model, key) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given together" if given else "it says nothing"
        raise wrong(what, f"write exactly one of {', '.join(keys)}")


def in_order(uniform: tuple[float, float] | None) -> None:
    """Raise for a validator where the least is above the most."""
    if uniform is not None and uniform[0] > uniform[1]:
        raise wrong("the least is above the most", "write [least, most]", "uniform")
