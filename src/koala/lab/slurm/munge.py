"""The lab's own munged, which authenticates users for the Slurm clusters, with its own key and socket."""

from __future__ import annotations

import secrets

from koala.lab import programs
from koala.lab.daemons import Daemons
from koala.lab.errors import LabFailedError
from koala.lab.plan import LabPlan

NAME = "munged"
PROGRAMS = ("munged",)
_KEY_BYTES = 128


def start(plan: LabPlan, daemons: Daemons) -> None:
    """Start munged; return when its socket answers.

    The option --force lets it continue if its directory seems too open or too closed: anybody may have to pass
    through the directories above, which are the user's own business.
    """
    plan.munge.mkdir(mode=0o755)
    key = plan.munge / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(_KEY_BYTES))
    words = [
        programs.find("munged") or "munged",
        "--foreground",
        "--force",
        f"--key-file={key}",
        f"--socket={plan.munge_socket}",
        f"--pid-file={plan.munge}/pid",
        f"--seed-file={plan.munge}/seed",
        f"--log-file={plan.munge}/log",
        "--num-threads=2",
    ]
    daemons.start(NAME, words, None)
    wait(plan, daemons)


def wait(plan: LabPlan, daemons: Daemons) -> None:
    """Wait until its socket exists, which munged makes when it is ready."""
    programs.wait_until(lambda: plan.munge_socket.is_socket() or not daemons.is_alive(NAME), programs.START_S_MAX)
    if not (plan.munge_socket.is_socket() and daemons.is_alive(NAME)):
        raise LabFailedError(f"munged did not start: {daemons.said(NAME)}")
