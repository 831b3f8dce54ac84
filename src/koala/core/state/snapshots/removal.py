"""A job taken out of a split snapshot, or put back into its queue there, for an operator who mends a record while
nothing runs.

It works on the encoded values, so that it needs neither the job's request nor its policy, nor a core that could
handle the job. What a removed job held is then nobody's, and a component that a site still holds is one that nobody
knows. A job that is put back first waits until every site has let go of what it held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from koala.core.lifecycle import ENDED, JobState
from koala.core.state.job import ComponentClaim, Job, JobPlaces, JobRun
from koala.core.state.snapshots.snapshot import damaged
from koala.core.state.timers import OF_CLAIMS, Alarm
from koala.model.facts import JobHeld
from koala.model.messages import TransferId
from koala.model.request import JobId, SiteName
from koala.policies.interface import Spots

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
        return _Removal(header, sections, job).run(for_good=True)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise damaged(str(error)) from error


class _Removal:
    def __init__(self, header: bytes, sections: Mapping[str, Sequence[bytes]], job: JobId) -> None:
        self._header = _decode(header)
        self._sections = {name: list(values) for name, values in sections.items()}
        self._job = job
        self._tokens: set[str] = set()
        self._transfers: list[TransferId] = []

    def run(self, *, for_good: bool) -> RemovedJob:
        """``for_good``: not to be put back, so that the array of which it is an element does not wait for it."""
        before = len(self._sections["jobs"])
        mine = [job for job in map(_decode, self._sections["jobs"]) if job["id"] == self._job]
        self._keep("jobs", lambda job: job["id"] != self._job)
        self._keep("claims", self._is_of_others)
        self._change("transfers", self._without_me)
        self._change("sites", self._site)
        self._keep("timers", self._timer_is_of_others)
        if for_good and mine and mine[0].get("array") and mine[0]["state"] not in ENDED:
            self._leave_array(mine[0])
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

    def _leave_array(self, element: dict[str, Any]) -> None:
        """Its array goes on as if it had been cancelled; where it was the last, the array is over."""
        number = element["array"]

        def without_it(job: dict[str, Any]) -> dict[str, Any]:
            if job["id"] != number:
                return job
            elements = job["unfolds"]
            ended = {**elements["not_done"], str(self._job - number - 1): str(JobState.CANCELLED)}
            ahead = elements["ahead"] - bool(element["ahead"])
            return job | {"unfolds": elements | {"live": elements["live"] - 1, "ahead": ahead, "not_done": ended}}

        self._change("jobs", without_it)
        _let_unfold(self._sections, self._header["now"], {number})

    def _timer_is_of_others(self, timer: list[Any]) -> bool:
        _, what, whom = timer
        if what in OF_CLAIMS:
            return whom not in self._tokens
        if what == Alarm.TRANSFER_OVERDUE:
            return whom not in self._transfers
        return bool(what == Alarm.COOLED_DOWN or whom != self._job)


def _let_unfold(sections: dict[str, list[bytes]], at: float, arrays: Collection[JobId]) -> None:
    """The arrays are looked at when time goes on: more of their elements may be due, or they may be over."""
    looked_at = {whom for _, what, whom in map(_decode, sections["timers"]) if what == Alarm.UNFOLDS}
    for job in map(_decode, sections["jobs"]):
        if job["id"] in arrays and job["state"] == JobState.UNFOLDING and job["id"] not in looked_at:
            sections["timers"].append(_encode((at, Alarm.UNFOLDS, job["id"])))


class ElementsOnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record of the elements of an array: how many were made and have started, and by position how those
    ended that are not done."""

    made: int
    started: int
    not_done: dict[int, str]


def with_elements_counted(
    sections: Mapping[str, Sequence[bytes]], told: Mapping[JobId, ElementsOnRecord], at: float
) -> dict[str, list[bytes]]:
    """The arrays count the elements that are there and what is on record of those that have ended. Raises
    SnapshotError for what is no snapshot."""
    counted = {name: list(values) for name, values in sections.items()}
    try:
        live, ahead = Counter[JobId](), Counter[JobId]()
        for job in map(_decode, counted["jobs"]):
            array = job.get("array")
            if array in told and job["state"] not in ENDED:
                live[array] += 1
                ahead[array] += job["ahead"]
        for place, value in enumerate(counted["jobs"]):
            job = _decode(value)
            elements = told.get(job["id"])
            if elements is not None:
                counted["jobs"][place] = _encode(
                    job
                    | {
                        "unfolds": {
                            "made": elements.made,
                            "started": elements.started,
                            "not_done": elements.not_done,
                            "live": live[job["id"]],
                            "ahead": ahead[job["id"]],
                        }
                    }
                )
        _let_unfold(counted, at, told)
        return counted
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise damaged(str(error)) from error


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
    places: Sequence[tuple[SiteName, int]] = (),
) -> PutBack:
    """The snapshot with this job, in place of the one of that number, on its way back to its queue.

    The job has its counts and its story; ``places`` are where it was. What it held is aborted, and it
    is placed again when the sites have confirmed that. ``kept_back`` is what keeps it back, whatever the job itself
    says. Raises SnapshotError for what is no snapshot.
    """
    last_job = _decode(header)["last_job"]
    try:
        removed = _Removal(header, sections, job.id).run(for_good=False)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError) as error:
        raise damaged(str(error)) from error
    kept = removed.sections
    index = {_decode(value)["name"]: number for number, value in enumerate(kept["sites"])}
    here = [each for each in held if each.site in index]
    kept_back = JobHeld(job=job.id) if kept_back is None else kept_back
    job.held, job.held_by, job.begins_at = kept_back.held, kept_back.held_by, kept_back.begins_at
    job.waits_for = [(each.condition, each.job) for each in kept_back.waits_for]
    newest = {each.component: each for each in sorted(here, key=_start_number)}
    timers: list[tuple[float, Alarm, int | str]] = []
    if here:
        job.state = JobState.UNWINDING
        there = _places(places, newest, index)
        sizes = tuple([processors for _, processors in there])
        spots = Spots(tuple([index[name] for name, _ in there]), sizes)
        job.placement = JobPlaces(spots, there, at, run=JobRun(at, len(newest)))
    else:
        job.state = JobState.WAITING if job.spec is None else JobState.UNFOLDING
        if job.is_kept_back:
            job.state = JobState.HELD
        elif job.spec is not None:
            timers.append((at, Alarm.UNFOLDS, job.id))
        else:
            timers.append((at, Alarm.RESTED, job.id))
        if job.begins_at is not None:
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
    told["last_job"] = max(last_job, job.id + (0 if job.spec is None else job.spec.size))
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
