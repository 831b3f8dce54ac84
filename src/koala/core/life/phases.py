"""All phases by their states."""

from __future__ import annotations

from koala.core.life.claiming import Claiming
from koala.core.life.collecting import Collecting
from koala.core.life.ended import Cancelled, Done, Failed
from koala.core.life.held import Held
from koala.core.life.phase import Phase
from koala.core.life.placed import Placed
from koala.core.life.quarantined import Quarantined
from koala.core.life.running import Running
from koala.core.life.starting import Starting
from koala.core.life.states import JobState
from koala.core.life.unfolding import Unfolding
from koala.core.life.unwinding import Unwinding
from koala.core.life.waiting import Waiting

PHASES: dict[JobState, type[Phase]] = {
    each.state: each
    for each in (
        Held,
        Waiting,
        Placed,
        Claiming,
        Starting,
        Running,
        Collecting,
        Unwinding,
        Unfolding,
        Quarantined,
        Done,
        Failed,
        Cancelled,
    )
}
