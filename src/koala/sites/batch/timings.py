"""How often a batch site is polled, how long it is waited for, and how many jobs one question covers."""

from __future__ import annotations

import msgspec


class BatchTimings(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one batch site. ``first`` waits grow to ``most`` while nothing changes."""

    # The shortest and the longest wait between polls of components' files.
    poll_first_s: float = 0.25
    poll_most_s: float = 5.0
    # A poll waits at the site for files to appear if at most this many components live there; each pause is the given
    # share of the whole wait. A poll that waits longer than the last limit is abandoned when another poll is due.
    awaited_components_max: int = 64
    pause_share: float = 0.1
    abandon_s: float = 0.5
    # The waits between listings: while an end is to be confirmed, and while nothing is expected. Grid Engine shows a
    # job for one or two seconds after its script has ended: listings come evenly for that long, to see the end soon
    # after it.
    confirm_first_s: float = 0.3
    confirm_steady: int = 6
    confirm_most_s: float = 10.0
    calm_first_s: float = 2.0
    calm_most_s: float = 20.0
    # A listing of this age is fresh enough for any caller.
    fresh_s: float = 1.0
    # The waits before a failing site is tried again, and between the reports of its silence.
    rest_first_s: float = 0.5
    rest_most_s: float = 30.0
    tell_again_s: float = 30.0
    # How long the record of a job is awaited after its batch system has forgotten the job: Grid Engine writes its
    # accounting every 15 s, and a file server shows it later.
    unknown_grace_s: float = 30.0
    # How long the record of a script that ended by itself is awaited: an NFS client may not see for a minute (its
    # option acdirmax) what another machine has written.
    unseen_grace_s: float = 90.0
    # At most this many jobs' ends are asked for in one script; fewer after a script that took too long.
    history_jobs_max: int = 32
    # A job that continues after its cancellation is cancelled again after this time.
    cancel_again_s: float = 10.0
    # The waits before the next submission to a batch system that has too many jobs.
    crowded_first_s: float = 5.0
    crowded_most_s: float = 30.0


DEFAULT_TIMINGS = BatchTimings()
