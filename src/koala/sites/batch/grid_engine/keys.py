"""The keys of the grid file for sites under Grid Engine only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from koala.model.grid import BatchSettings
from koala.sites.batch.kind import GridKey, KeyFinding

_COMPLEX = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class GridEngineKeys(msgspec.Struct, frozen=True):
    """The values of the keys. Components run in ``parallel_environment``; tasks get memory by the consumable
    ``memory_complex`` and GPUs by ``gpu_complex``, and ``gpu_kind_complex`` names the kind of a host's GPUs."""

    parallel_environment: str | None = None
    memory_complex: str | None = None
    gpu_complex: str | None = None
    gpu_kind_complex: str | None = None


def keys_of(settings: BatchSettings) -> GridEngineKeys:
    """Return the values of the keys at a site."""
    return GridEngineKeys(**dict(settings.own))


def _complex(name: str, description: str) -> GridKey:
    return GridKey(
        name=name,
        description=description,
        pattern=_COMPLEX,
        noun="the name of a resource",
        advice="write one that qconf -sc lists there",
    )


KEYS = (
    GridKey(
        name="parallel_environment",
        description="the parallel environment that components run in; by default those of several processors take "
        "one that the queue offers, with control_slaves if there is one",
    ),
    _complex(
        "memory_complex",
        "the consumable by which tasks get memory, such as h_vmem; without it, or where it is not consumable, a task "
        "that asks for memory goes to a host that has so much, uncounted",
    ),
    _complex(
        "gpu_complex",
        "the consumable by which tasks get GPUs, such as gpu; without it tasks with GPUs do not go there",
    ),
    _complex(
        "gpu_kind_complex",
        "the attribute of hosts that names the kind of their GPUs, such as gpu_type; without it they are of no kind; "
        "not without gpu_complex",
    ),
)


def contradictions(values: Mapping[str, str]) -> Iterator[KeyFinding]:
    """Yield a finding if the grid file names kinds of GPUs but no resource to request GPUs."""
    if "gpu_kind_complex" in values and "gpu_complex" not in values:
        yield (
            "gpu_kind_complex",
            f"it says where the kinds of GPUs are told ({values['gpu_kind_complex']}), and gpu_complex is missing",
            "write the consumable by which GPUs are asked for: 'gpu_complex: gpu', or leave this out",
        )
