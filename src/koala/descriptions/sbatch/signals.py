"""The option ``--signal`` of a batch script: which signal asks a program to save, and when."""

from __future__ import annotations

import re
from typing import NamedTuple

from koala.model.checkpoint import CHECKPOINT_GRACE_S_MAX, GRACE_DEFAULT_S, CheckpointSignal

# The recipient (R or B in Slurm) does not matter: here the processes that catch the signal get it.
_SIGNAL = re.compile(r"(?:[RBrb]:)?(?:SIG)?([A-Za-z]+[0-9]?|[0-9]{1,2})(?:@([0-9]{1,5}))?")
# The numbers of Linux.
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}
SIGNAL_ADVICE = "write --signal=USR1@60 or --signal=B:USR1@60"


class AskedSignal(NamedTuple):
    """A signal, None if it asks no program to save; the seconds of grace; and a note."""

    signal: CheckpointSignal | None
    grace_s: float
    note: str


def asked_signal(text: str, walltime_s: float | None, *, saves: bool) -> AskedSignal | None:
    """Return the meaning of ``--signal``; None if it is no signal.

    A job that ``saves`` has named the place: it is asked even if its walltime has no end.
    """
    found = _SIGNAL.fullmatch(text)
    if found is None:
        return None
    name = _NUMBERS.get(found[1], found[1].upper())
    grace_s = GRACE_DEFAULT_S if found[2] is None else float(found[2])
    why = _why_not(name, grace_s, walltime_s, saves=saves)
    if why:
        return AskedSignal(None, 0.0, f"--signal has no effect: {why}")
    note = (
        f"--signal is a checkpoint of the job: processes of it that catch {name} get it {grace_s:.0f} s before the "
        "end of the walltime, and when it is preempted or requeued; KOALA_CHECKPOINT goes with it to its next run"
    )
    return AskedSignal(CheckpointSignal(name), grace_s, "" if saves else note)


def _why_not(name: str, grace_s: float, walltime_s: float | None, *, saves: bool) -> str:
    """Return why this signal, that long before the end of the walltime, asks no job to save; empty if it does."""
    if name not in set(CheckpointSignal):
        return f"a job is asked to save with one of {', '.join(CheckpointSignal)}"
    if walltime_s is None:
        return "" if saves else "without --time the walltime has no end before which it would be sent"
    if not 0 < grace_s < walltime_s or grace_s > CHECKPOINT_GRACE_S_MAX:
        return (
            f"it is sent 1 s to {CHECKPOINT_GRACE_S_MAX:.0f} s (CHECKPOINT_GRACE_S_MAX) before the end of the "
            f"walltime, which is {walltime_s:g} s"
        )
    return ""
