"""Checkpoints of a job: the directory in which its components save their state, and the signal that requests it."""

from __future__ import annotations

import enum

import msgspec

from koala.model.travelling import NAME_BYTES_MAX

# The longest wait for a component that is asked to save its state.
CHECKPOINT_GRACE_S_MAX = 3_600.0
# The longest time between two requests to save.
CHECKPOINT_EVERY_S_MAX = 30 * 86_400.0
# The time that a component has to save its state after a signal, unless the job sets another.
GRACE_DEFAULT_S = 60.0
# The directory, unless the job sets another.
DIRECTORY_DEFAULT = "checkpoint"
# The longest name of a directory.
DIRECTORY_CHARACTERS_MAX = 200
# The name of a checkpoint's archive in a workspace until it is unpacked.
CHECKPOINT_ARCHIVE = ".koala-checkpoint"
# A file with this ending is still being written, and is no part of a checkpoint.
UNFINISHED_SUFFIX = ".part"


class CheckpointSignal(enum.StrEnum):
    """The signals by which a program may be asked to save its state."""

    USR1 = "USR1"
    USR2 = "USR2"
    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the components of a job save their state.

    ``directory`` is below the workspace of each component; its contents at the end of a run are there when the next
    run begins, at whatever site. With ``shared`` all components get what the first one has saved; without it each
    gets its own. ``signal`` asks a program to save: every ``every_s``, and before it is ended, with ``grace_s`` to do
    so. Without a signal, ``every_s`` is the interval at which the program saves by itself.
    """

    directory: str = DIRECTORY_DEFAULT
    every_s: float | None = None
    signal: CheckpointSignal | None = None
    grace_s: float = 0.0
    shared: bool = False

    def problem(self, walltime_s: float | None = None) -> tuple[str, str] | None:
        """Return the field that makes no sense and what to write; None if all fields are valid."""
        steps = self.directory.split("/")
        if not self.directory or self.directory.startswith("/") or not all(steps) or {".", ".."} & {*steps}:
            return (
                "checkpoint_directory",
                f"{self.directory!r} is not a directory below the workspace; write a name such as ckpt",
            )
        if len(self.directory) > DIRECTORY_CHARACTERS_MAX or not self.directory.isprintable():
            return "checkpoint_directory", (
                f"its name has more than {DIRECTORY_CHARACTERS_MAX} characters (DIRECTORY_CHARACTERS_MAX), or some "
                "that cannot be printed; write a short name such as ckpt"
            )
        if max(len(step.encode()) for step in steps) > NAME_BYTES_MAX:
            return (
                "checkpoint_directory",
                f"a name in it has more than {NAME_BYTES_MAX} bytes (NAME_BYTES_MAX); write a short one such as ckpt",
            )
        if steps[0].startswith((".koala", "-")) or self.directory.endswith(UNFINISHED_SUFFIX):
            return (
                "checkpoint_directory",
                f"{self.directory!r} cannot be the name of a checkpoint; write one such as ckpt",
            )
        if self.every_s is not None and not 1 <= self.every_s <= CHECKPOINT_EVERY_S_MAX:
            return "checkpoint_every", (
                f"{self.every_s:g} s is not a time between two checkpoints; write 1 s to "
                f"{CHECKPOINT_EVERY_S_MAX:.0f} s (CHECKPOINT_EVERY_S_MAX)"
            )
        if not 0 <= self.grace_s <= CHECKPOINT_GRACE_S_MAX:
            return "checkpoint_grace", (
                f"{self.grace_s:g} s is not a time to save in; write 0 to {CHECKPOINT_GRACE_S_MAX:.0f} s "
                "(CHECKPOINT_GRACE_S_MAX)"
            )
        if walltime_s is not None and self.grace_s >= walltime_s:
            return "checkpoint_grace", f"{self.grace_s:g} s to save in use up the walltime of {walltime_s:g} s"
        return None

    @property
    def asks(self) -> bool:
        """True if a component is asked to save, and waited for, before it is ended."""
        return self.grace_s > 0


class CheckpointSource(msgspec.Struct, frozen=True, kw_only=True):
    """A component of an earlier run, which has ended, and its site; it may have left a checkpoint."""

    site: str
    token: str
