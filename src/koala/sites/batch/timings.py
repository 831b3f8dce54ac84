"""How often a batch site is polled, how long things are waited for there, and how many are asked about at a time."""

from __future__ import annotations

import msgspec


class BatchTimings(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one batch site. ``first`` waits grow to ``most`` while nothing changes."""

    # Files of components are polled so soon and so rarely.
    poll_first_s: float = 0.25
    poll_most_s: float = 5.0
    # A poll waits at the site for files to appear where no more components live there than this, with pauses that are
    # such a share of the whole wait. One that waits longer than so long is abandoned when something else is to be
    # polled: it would not know of it.
    awaited_components_max: int = 64
    pause_share: float = 0.1
    abandon_s: float = 0.5
    # The batch system is listed so soon and so rarely while an end is to be confirmed, and while nothing is expected.
    # Grid Engine shows a job for one or two seconds after its script has ended: so long listings come evenly, so that
    # the end is seen soon after it.
    confirm_first_s: float = 0.3
    confirm_steady: int = 6
    confirm_most_s: float = 10.0
    calm_first_s: float = 2.0
    calm_most_s: float = 20.0
    # A listing of this age is fresh enough for whoever asks.
    fresh_s: float = 1.0
    # A site that fails is tried again so soon and so rarely, and its silence is told so often.
    rest_first_s: float = 0.5
    rest_most_s: float = 30.0
    tell_again_s: float = 30.0
    # A job that its batch system does not know any more is waited for so long, as its record may come later than its
    # end: Grid Engine writes its accounting every 15 s, and a file server shows it later.
    unknown_grace_s: float = 30.0
    # The record of a script that ended by itself is waited for so long: a client of NFS may not see for a minute (its
    # option acdirmax) what another machine has written.
    unseen_grace_s: float = 90.0
    # So many jobs' ends are asked for in one script; fewer after one that took too long.
    history_jobs_max: int = 32
    # A job that goes on after it was cancelled is cancelled again after so long.
    cancel_again_s: float = 10.0
    # A batch system that has too many jobs is given another one no sooner than after so long, and ever more rarely.
    crowded_first_s: float = 5.0
    crowded_most_s: float = 30.0


DEFAULT_TIMINGS = BatchTimings()
