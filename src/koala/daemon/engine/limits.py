"""The limits and intervals of the engine, and its counters."""

from __future__ import annotations

import msgspec

from koala.daemon.perform.interface import SITE_CALL_S
from koala.daemon.perform.site_worker import COMMANDS_AT_ONCE_MAX
from koala.daemon.upkeep.journal_pruning import JOURNAL_ENTRIES_MAX
from koala.daemon.upkeep.site_poller import PROBE_S

# At most this many events are in one commit.
BATCH_EVENTS_MAX = 256
# At most this many events and calls wait to be handled. Then callers are refused, and sites are asked again later.
INBOX_ITEMS_MAX = 10_000
# A performed command is put on record with the next batch, or after at most this long.
SETTLE_S = 1.0
# The journal is pruned after this many events.
PRUNING_EVENTS = 5_000
# At most this many jobs are live at a time.
JOBS_LIVE_MAX = 100_000
# After a failure of the store the first retry comes after this long, later ones ever more rarely.
RECOVERY_FIRST_S = 0.5
RECOVERY_MOST_S = 30.0


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the engine and of its parts, for tests to set."""

    batch_events_max: int = BATCH_EVENTS_MAX
    inbox_items_max: int = INBOX_ITEMS_MAX
    settle_s: float = SETTLE_S
    pruning_events: int = PRUNING_EVENTS
    jobs_live_max: int = JOBS_LIVE_MAX
    recovery_first_s: float = RECOVERY_FIRST_S
    recovery_most_s: float = RECOVERY_MOST_S
    site_call_s: float = SITE_CALL_S
    commands_at_once_max: int = COMMANDS_AT_ONCE_MAX
    poll_s: float = PROBE_S
    journal_entries_max: int = JOURNAL_ENTRIES_MAX


class Counters(msgspec.Struct):
    """What the engine has done since it was opened."""

    events: int = 0
    commits: int = 0
    recoveries: int = 0
