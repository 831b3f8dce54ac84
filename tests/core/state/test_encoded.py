"""Empty containers that many objects share as defaults: nobody can fill them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from koala.core.encoded import NO_ENTRIES, NO_ITEMS


@pytest.mark.parametrize(
    "fill",
    [
        lambda: NO_ENTRIES.__setitem__("a", 1),
        lambda: NO_ENTRIES.setdefault("a", 1),
        lambda: NO_ENTRIES.update(a=1),
        lambda: NO_ENTRIES.__ior__({"a": 1}),
        lambda: NO_ITEMS.append(1),
        lambda: NO_ITEMS.extend([1]),
        lambda: NO_ITEMS.insert(0, 1),
        lambda: NO_ITEMS.__iadd__([1]),
        lambda: NO_ITEMS.__setitem__(slice(0, 0), [1]),
    ],
)
def test_a_shared_empty_container_refuses_to_be_filled(fill: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="is shared; put a new one in its place"):
        fill()
    assert not NO_ENTRIES
    assert not NO_ITEMS


def test_they_are_encoded_as_any_other() -> None:
    assert msgspec.json.encode({"entries": NO_ENTRIES, "items": NO_ITEMS}) == b'{"entries":{},"items":[]}'
