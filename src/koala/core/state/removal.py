"""A job taken out of a split snapshot, or put back into its queue there, for an operator who mends a record while
nothing runs.

It works on the encoded values, so that it needs neither the job's request nor its policy, nor a core that could
handle the job. What a removed job held is then nobody's, and a component that a site still holds is one that nobody
knows. A job that is put back first waits until every site has let go of what it held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koala.core.lifecycle import JobState
from koala.core.state.job import ComponentClaim, Job
from koala.core.state.snapshot import damaged
from koala.core.state.timers import OF_CLAIMS, Alarm
from koala.model.messages import TransferId
from koala.model.request import JobId
from koala.policies.front_door import Spots

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class RemovedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A split snapshot without a job; whether it was there, and the transfers that no other job needs."""

    header: bytes
    sections: dict[str, list[bytes]]
    was_there: bool
    transfers: tuple[TransferId, ...]


def without_job(header: bytes, sections: Mapping[str, Sequence[bytes]], job: JobId) -> RemovedJob:
    """The snapshot as if the job had let go of everything just now. Raises SnapshotError for what is no snapshot."""
    try:
        return _Removal(header, sections, job).run()
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise damaged(str(error)) from error


class _Removal:
    def __init__(self, header: bytes, sections: Mapping[str, Sequence[bytes]], job: JobId) -> None:
        self._header = _decode(header)
        self._sections = {name: list(values) for name, values in sections.items()}
        self._job = job
        self._tokens: set[str] = set()
        self._transfers: list[TransferId] = []

    def run(self) -> RemovedJob:
        before = len(self._sections["jobs"])
        self._keep("jobs", lambda job: job["id"] != self._job)
        self._keep("claims", self._is_of_others)
        self._change("transfers", self._without_me)
        self._change("sites", self._site)
        self._keep("timers", self._timer_is_of_others)
        # More is free than before: those who wait are tried again.
        header = self._header | {name: self._header[name] + 1 for name in ("helped", "changed")}
        # Sites may still know components by its number. That of a job whose submission came after the snapshot is
        # kept apart: submissions of others before it are still to be replayed.
        if self._job > header["last_job"]:
            header["last_removed"] = max(self._job, header.get("last_removed", -1))
        return RemovedJob(
            header=_encode(header),
            sections=self._sections,
            was_there=len(self._sections["jobs"]) < before,
            transfers=tuple(self._transfers),
        )

    def _keep(self, section: str, is_kept: Any) -> None:
        values = self._sections[section]
        self._sections[section] = [value for value in values if is_kept(_decode(value))]

    def _change(self, section: str, changed: Any) -> None:
        """Each value as it becomes; one that becomes None goes, and one that stays the same keeps its bytes."""
        kept = []
        for value in self._sections[section]:
            old = _decode(value)
            new = changed(old)
            if new is not None:
                kept.append(value if new is old else _encode(new))
        self._sections[section] = kept

    def _is_of_others(self, claim: dict[str, Any]) -> bool:
        if claim["job_id"] != self._job:
            return True
        self._tokens.add(claim["token"])
        return False

    def _without_me(self, transfer: dict[str, Any]) -> dict[str, Any] | None:
        me = str(self._job)
        if me not in transfer["jobs"]:
            return transfer
        others = {job: None for job in transfer["jobs"] if job != me}
        if others:
            return transfer | {"jobs": others}
        self._transfers.append(transfer["id"])
        return None

    def _site(self, site: dict[str, Any]) -> dict[str, Any]:
        me = str(self._job)
        if site["probe_job"] != self._job and me not in site["waiters"]:
            return site
        return site | {
            "probe_job": None if site["probe_job"] == self._job else site["probe_job"],
            "waiters": {job: count for job, count in site["waiters"].items() if job != me},
        }

    def _timer_is_of_others(self, timer: list[Any]) -> bool:
        _, what, whom = timer
        if what in OF_CLAIMS:
            return whom not in self._tokens
        if what == Alarm.TRANSFER_OVERDUE:
            return whom not in self._transfers
        return bool(what == Alarm.COOLED_DOWN or whom != self._job)


# ------------------------------------------------------------------------------------------------ put back


class HeldComponent(msgspec.Struct, frozen=True, kw_only=True):
    """What a site may still hold of a job: its token, the site, its processors."""

    token: str
    site: str
    processors: int


class PutBack(msgspec.Struct, frozen=True, kw_only=True):
    """A split snapshot in which the job waits for a place, or until its sites have let go of it."""

    header: bytes
    sections: dict[str, list[bytes]]
    state: JobState
    transfers: tuple[TransferId, ...]


def with_job_put_back(
    header: bytes, sections: Mapping[str, Sequence[bytes]], job: Job, held: Sequence[HeldComponent], at: float
) -> PutBack:
    """The snapshot with this job, in place of the one of that number, on its way back to its queue.

    The job has its counts and its story, and nothing of a place. What it held is aborted, and it is placed again when
    the sites have confirmed that. Raises SnapshotError for what is no snapshot.
    """
    last_job = _decode(header)["last_job"]
    removed = without_job(header, sections, job.id)
    kept = removed.sections
    index = {_decode(value)["name"]: number for number, value in enumerate(kept["sites"])}
    here = [each for each in held if each.site in index]
    places = tuple([(each.site, each.processors) for each in here])
    if here:
        job.state = JobState.UNWINDING
        job.spots = Spots(tuple([index[name] for name, _ in places]), tuple([count for _, count in places]))
        job.places = places
        job.outstanding = len(here)
    timers: list[tuple[float, Alarm, int | str]] = [] if here else [(at, Alarm.RESTED, job.id)]
    for component, each in enumerate(here):
        claim = ComponentClaim(each.token, job.id, component, index[each.site], each.processors)
        claim.aborting = True
        claim.due_at = at
        kept["claims"].append(_encode(claim))
        timers.append((at, Alarm.ABORT_AGAIN, each.token))
    kept["jobs"].append(_encode(job))
    kept["timers"] += [_encode(timer) for timer in timers]
    told = _decode(removed.header)
    told["last_job"] = max(last_job, job.id)
    return PutBack(header=_encode(told), sections=kept, state=job.state, transfers=removed.transfers)
