"""The ``checkpoint`` of a job: where its components save their state, and how they are asked to."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from koala.descriptions.fields import Description, Duration, SomeText
from koala.model.checkpoint import DIRECTORY_DEFAULT, GRACE_DEFAULT_S, Checkpoint, CheckpointSignal


class CheckpointText(Description):
    """How the components of a job save what they have done, for its next run."""

    directory: SomeText = Field(
        default=DIRECTORY_DEFAULT,
        description="the directory below the workspace of each component that goes with the job to its next run; "
        "KOALA_CHECKPOINT tells its path. What ends in .part is being written, and stays behind",
    )
    every: Duration | None = Field(
        default=None,
        description="how often components are asked to save (with a signal), or save by themselves (without one): "
        "seconds, 10m, 2h",
    )
    signal: CheckpointSignal | None = Field(
        default=None,
        description="the signal that asks a program to save; only processes that catch it get it",
    )
    grace: Duration | None = Field(
        default=None,
        description="how long a component that is asked to save, as it is preempted, requeued or at the end of its "
        f"walltime, may still run; by default {GRACE_DEFAULT_S:.0f} s with a signal, and 0 without",
    )
    shared: bool = Field(
        default=False,
        description="all components go on from what the first one saved, as those of a flexible job always do; "
        "without it each goes on from its own",
    )

    def checkpoint(self) -> Checkpoint:
        """Return the value of the checkpoint."""
        default_s = 0.0 if self.signal is None else GRACE_DEFAULT_S
        return Checkpoint(
            directory=self.directory,
            every_s=self.every,
            signal=self.signal,
            grace_s=default_s if self.grace is None else self.grace,
            shared=self.shared,
        )


def checkpoint_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return values that ``CheckpointText`` reads as this checkpoint."""
    values: dict[str, Any] = {"directory": checkpoint.directory}
    if checkpoint.every_s is not None:
        values["every"] = _whole(checkpoint.every_s)
    if checkpoint.signal is not None:
        values["signal"] = str(checkpoint.signal)
    values["grace"] = _whole(checkpoint.grace_s)
    if checkpoint.shared:
        values["shared"] = True
    return values


def _whole(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds
