"""Settings of sites under a batch system for tests: the keys that a system alone has stand among the others."""

from __future__ import annotations

from typing import Any

from koala.model.grid import BatchSettings


def batch_settings(work_directory: str = "/w", **keys: Any) -> BatchSettings:
    """The settings that these keys of a grid file make."""
    fields = {key: value for key, value in keys.items() if key in BatchSettings.__struct_fields__}
    own = tuple((key, value) for key, value in keys.items() if key not in fields)
    return BatchSettings(work_directory=work_directory, own=own, **fields)
