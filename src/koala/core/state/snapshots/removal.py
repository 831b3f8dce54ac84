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
from koala.core.state.snapshots.snapshot import damaged
from koala.core.state.timers import OF_CLAIMS, Alarm
from koala.model.messages import JobHeld, TransferId
from koala.model.request import JobId, SiteName
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
    """What a site may still hold of a job: its token, which component it is of, the site, its processors."""

    token: str
    component: int
    site: str
    processors: int


class PutBack(msgspec.Struct, frozen=True, kw_only=True):
    """A split snapshot in which the job waits for a place, until its sites have let go of it, or for what keeps it
    back."""

    header: bytes
    sections: dict[str, list[bytes]]
    state: JobState
    transfers: tuple[TransferId, ...]


def with_job_put_back(
    header: bytes,
    sections: Mapping[str, Sequence[bytes]],
    job: Job,
    held: Sequence[HeldComponent],
    at: float,
    kept_back: JobHeld | None = None,
) -> PutBack:
    """The snapshot with this job, in place of the one of that number, on its way back to its queue.

    The job has its counts and its story; of its places it says only where they were. What it held is aborted, and it
    is placed again when the sites have confirmed that. ``kept_back`` is what keeps it back, whatever the job itself
    says. Raises SnapshotError for what is no snapshot.
    """
    last_job = _decode(header)["last_job"]
    removed = without_job(header, sections, job.id)
    kept = removed.sections
    index = {_decode(value)["name"]: number for number, value in enumerate(kept["sites"])}
    here = [each for each in held if each.site in index]
    kept_back = JobHeld(job=job.id) if kept_back is None else kept_back
    job.held, job.begins_at = kept_back.held, kept_back.begins_at
    job.waits_for = [(each.condition, each.job) for each in kept_back.waits_for]
    newest = {each.component: each for each in sorted(here, key=_start_number)}
    timers: list[tuple[float, Alarm, int | str]] = []
    if here:
        job.state = JobState.UNWINDING
        job.places = _places(job.places, newest, index)
        sizes = tuple([processors for _, processors in job.places])
        job.spots = Spots(tuple([index[name] for name, _ in job.places]), sizes)
        job.outstanding = len(newest)
    else:
        job.places = ()
        job.state = JobState.HELD if job.is_kept_back else JobState.WAITING
        if not job.is_kept_back:
            timers.append((at, Alarm.RESTED, job.id))
        elif job.begins_at is not None:
            timers.append((job.begins_at, Alarm.BEGINS, job.id))
    for each in here:
        claim = ComponentClaim(each.token, job.id, each.component, index[each.site], each.processors)
        claim.aborting = True
        claim.given_up = newest[each.component] is not each
        claim.due_at = at
        kept["claims"].append(_encode(claim))
        timers.append((at, Alarm.ABORT_AGAIN, each.token))
    kept["jobs"].append(_encode(job))
    kept["timers"] += [_encode(timer) for timer in timers]
    told = _decode(removed.header)
    told["last_job"] = max(last_job, job.id)
    return PutBack(header=_encode(told), sections=kept, state=job.state, transfers=removed.transfers)


def _start_number(held: HeldComponent) -> int:
    return int(held.token.rpartition(".")[2])


def _places(
    on_record: Sequence[tuple[SiteName, int]], newest: Mapping[int, HeldComponent], index: Mapping[SiteName, int]
) -> tuple[tuple[SiteName, int], ...]:
    """By component where it is held, or was last."""
    places = []
    for component in range(max(len(on_record), max(newest) + 1)):
        each = newest.get(component)
        if each is None and component < len(on_record) and on_record[component][0] in index:
            places.append(on_record[component])
        else:  # of one that nobody knows any more it matters only that it has a number
            each = each or next(iter(newest.values()))
            places.append((each.site, each.processors))
    return tuple(places)
