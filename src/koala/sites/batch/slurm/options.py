"""The requests in a site's options for sbatch: memory, features of nodes, whole nodes.

Unknown options request nothing here; unknown requests for memory make the memory unknown. sbatch decides in the end.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from koala.model.grid import BatchSettings

_FEATURE = re.compile(r"[\w.:=+/-]+", re.ASCII)
_GPUS = re.compile(r"--gpus.*|-G.*|--tres-per-.*gpu.*", re.ASCII)
_SCALES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


class Sharing(enum.Enum):
    """How a job shares its nodes."""

    ANYBODY = enum.auto()
    OWN_USER = enum.auto()
    NOBODY = enum.auto()


class Features(msgspec.Struct, frozen=True):
    """Features that a node must have: all of them, or one."""

    names: tuple[str, ...] = ()
    one_will_do: bool = False

    def are_met(self, found: set[str]) -> bool:
        """Return True if a node with these features has the requested ones."""
        if not self.names:
            return True
        return (any if self.one_will_do else all)(name in found for name in self.names)


class RequestedResources(msgspec.Struct, frozen=True):
    """What each job of a site requests. None stands for Slurm's default memory; ``node_mb`` is 0 for all memory of a
    node. The amount is unknown if ``memory_is_known`` is false."""

    processor_mb: int | None = None
    node_mb: int | None = None
    features: Features = Features()
    sharing: Sharing = Sharing.ANYBODY
    memory_is_known: bool = True
    has_gpus: bool = False


def requested_by(settings: BatchSettings) -> RequestedResources:
    """Return the requests of a site's settings, as options of sbatch or as its variables."""
    words, environment = settings.submit_options, dict(settings.environment)
    of_processor, of_node, is_known = _memory(words, environment)
    features = option(words, "--constraint", "-C") or environment.get("SBATCH_CONSTRAINT", "")
    return RequestedResources(
        of_processor,
        of_node,
        features_of(features),
        _sharing(words, environment.get("SBATCH_EXCLUSIVE")),
        memory_is_known=is_known,
        has_gpus=_has_gpus(words, environment),
    )


def _memory(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, int | None, bool]:
    """Return the memory for each processor, or else for each node, and whether it is known. Variables count if no
    option requests memory."""
    given = (option(words, "--mem-per-cpu"), option(words, "--mem"))
    # For each GPU, or abbreviated as getopt allows it.
    is_other = any(re.match(r"--mem-p(?!er-cpu(=|$))", word) for word in words)
    if given == (None, None) and not is_other:
        given = (environment.get("SBATCH_MEM_PER_CPU"), environment.get("SBATCH_MEM_PER_NODE"))
        is_other = "SBATCH_MEM_PER_GPU" in environment
    sizes = [None if text is None else megabytes(text) for text in given]
    if is_other or any(text is not None and size is None for text, size in zip(given, sizes, strict=True)):
        return None, None, False
    of_processor, of_node = sizes
    if of_processor == 0:  # like --mem=0
        return None, 0, True
    return of_processor, None if of_processor is not None else of_node, True


def _has_gpus(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    if any(_GPUS.fullmatch(word) for word in words) or any(name.startswith("SBATCH_GPUS") for name in environment):
        return True
    return "gpu" in (option(words, "--gres") or environment.get("SBATCH_GRES", ""))


def option(words: Sequence[str], long: str, short: str | None = None) -> str | None:
    """Return the value of an option of sbatch, the last one if it occurs twice."""
    found = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word in (long, short):
            found = after
        elif word.startswith(f"{long}="):
            found = word.partition("=")[2]
        elif short is not None and word.startswith(short) and not word.startswith("--"):
            found = word[len(short) :]
    return found


def megabytes(text: str) -> int | None:
    """Parse ``4G`` as 4096; without a unit the number is in megabytes. None if it is no size."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", text.strip().upper(), re.ASCII)
    return None if match is None else math.ceil(int(match[1]) * _SCALES[match[2] or "M"])


def features_of(text: str) -> Features:
    """Parse ``a``, ``a&b`` or ``a|b``. Any other expression requests nothing here."""
    for sign in ("&", "|"):
        names = tuple(text.split(sign))
        if all(_FEATURE.fullmatch(name) for name in names):
            return Features(names, sign == "|" and len(names) > 1)
    return Features()


def _sharing(words: Sequence[str], default: str | None) -> Sharing:
    """Parse ``--exclusive``, which excludes everybody, or ``--exclusive=user``, which excludes other users."""
    given = [word.partition("=")[2] for word in words if word == "--exclusive" or word.startswith("--exclusive=")]
    if not given and default is None:
        return Sharing.ANYBODY
    kinds = {"": Sharing.NOBODY, "exclusive": Sharing.NOBODY, "user": Sharing.OWN_USER}
    return kinds.get((given[-1] if given else default or "").lower(), Sharing.ANYBODY)
