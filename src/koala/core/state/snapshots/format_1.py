"""A snapshot of format 1, which earlier versions of Koala wrote, as one of the present format: plain values only.

In format 1 sites stood by name where they now have numbers, a job's place in a queue stood with the queue, its claims
were tokens, what a try had seen was a number in a list, and an infinite time was the word "infinite".
"""

from __future__ import annotations

from typing import Any

FORMAT = 1

# What a job has now as it had it then.
_JOB_FIELDS = (
    "id",
    "state",
    "submitted_at",
    "waiting_since",
    "claim_fraction",
    "ended_at",
    "placement_tries",
    "places",
    "placed_at",
    "started_at",
    "ready",
    "outstanding",
    "observed",
    "claim_resumed",
    "rests",
    "claiming_tries",
    "claiming_tries_in_row",
    "runs",
    "starts",
    "failures",
    "application_failures",
    "preemptions",
)
_CLAIM_FIELDS = ("token", "processors", "phase", "moved", "aborting", "abort_tries")
_SITE_FIELDS = ("name", "others", "trust", "drained", "errors", "probe_job")
_TRANSFER_FIELDS = ("id", "size_bytes", "started_at", "tries", "done")
_QUEUE_FIELDS = ("scanned_helped", "scanned_changed", "passed_changed", "next_position", "untried", "scans")
_HEADER_FIELDS = ("grid", "now", "last_job")
_COUNTS = ("helped", "changed", "observations", "transfers_started", "claiming_sequence")


def upgraded(old: dict[str, Any], version: int) -> dict[str, Any]:
    """The snapshot as the present format has it. Raises LookupError, TypeError or ValueError where it is damaged."""
    return _Upgrade(old).snapshot(version)


class _Upgrade:
    def __init__(self, old: dict[str, Any]) -> None:
        self._old = old
        self._number = {site["name"]: number for number, site in enumerate(old["sites"])}
        self._idles = old.get("idles", [])
        self._demands = old.get("link_demands", [])
        self._keys = {each["id"]: self._key(each) for each in old.get("transfers", ())}
        queues = [old.get("high", {}), old.get("low", {})]
        self._queues = queues
        self._in_line = {place["job"]: place for queue in queues for place in queue.get("in_line", ())}
        self._claiming = {place["job"]: place for place in old.get("claiming", ())}
        self._live = old.get("jobs", [])
        self._gone = old.get("gone", [])

    def snapshot(self, version: int) -> dict[str, Any]:
        old = self._old
        held = {token for job in (*self._live, *self._gone) for token in job.get("claims", ())}
        return {
            "version": version,
            **{name: old[name] for name in _HEADER_FIELDS},
            **{name: old.get(name, 0) for name in _COUNTS},
            "observed_bisection_bit_s": old.get("observed_bisection_bit_s", 0.0),
            "scans_so_far": [queue.get("scans_so_far", 0) for queue in self._queues],
            "sites": [self._site(site) for site in old["sites"]],
            "queues": [self._queue(queue, high=not number) for number, queue in enumerate(self._queues)],
            "jobs": [self._job(job) for job in self._live] + [self._job(job) for job in self._gone],
            "requests": [job["request"] for job in (*self._live, *self._gone)],
            "claims": [self._claim(claim, held) for claim in old.get("claims", ())],
            "transfers": [self._transfer(each) for each in old.get("transfers", ())],
            "timers": [[_time(alarm["at"]), alarm["what"], self._whom(alarm)] for alarm in old.get("alarms", ())],
            "links": [
                [*map(self._site_number, link["between"]), link["described_bytes_per_s"], link["bytes_per_s"]]
                for link in old.get("links", ())
            ],
            "files": {
                file["name"]: [
                    file.get("size_bytes", 0),
                    [self._site_number(name) for name in file.get("replicas", ())],
                ]
                for file in old.get("files", ())
            },
        }

    def _site_number(self, name: str) -> int:
        return self._number[name]

    def _seen(self, idle: int, demand: int | None = None) -> list[Any]:
        return [self._idles[idle], [] if demand is None else self._demands[demand]]

    def _job(self, old: dict[str, Any]) -> dict[str, Any]:
        new = _kept(old, _JOB_FIELDS)
        if new["state"] == "releasing":
            new["state"] = "unwinding"
        sites = [self._number.get(name) for name, _ in old.get("places", ())]
        new["story"] = [self._story_entry(*entry) for entry in old.get("story", ())]
        if old.get("refused_idle") is not None:
            new["refused"] = self._seen(old["refused_idle"], old.get("refused_demand"))
        if sites and None not in sites:  # an ended job may have been at a site that is gone
            new["spots"] = [sites, [size for _, size in old["places"]], old.get("task_parts", [])]
        for name in ("start_estimate", "first_start_estimate", "deadline"):
            if name in old:
                new[name] = _time(old[name])
        new["earmarks"] = {str(component): sites[component] for component in old.get("earmarks", ())}
        new["needs"] = [[self._keys[transfer] for transfer in needed] for needed in old.get("needs", ())]
        new["barred"] = dict(old.get("barred", ()))
        place = self._in_line.get(old["id"])
        if place is not None:
            new |= _kept(place, ("position", "entered_scan", "joined_after_scan", "exhausted_at_scan"))
        turn = self._claiming.get(old["id"])
        if turn is not None:
            new |= {"claim_at": _time(turn["at"]), "claim_sequence": turn["sequence"]}
        return new

    @staticmethod
    def _story_entry(at: float, what: str, details: list[Any]) -> list[Any]:
        if what == "refused":  # the job remembers what it saw
            return [at, what]
        if what == "placed":
            sites, sizes, transfer_s = details
            return [at, what, sites, sizes, _time(transfer_s)]
        return [at, what, *details]

    def _claim(self, old: dict[str, Any], held: set[str]) -> dict[str, Any]:
        return _kept(old, _CLAIM_FIELDS) | {
            "job_id": old["job"],
            "component": old["part"],
            "site": self._number[old["site"]],
            "given_up": old["token"] not in held,
        }

    def _site(self, old: dict[str, Any]) -> dict[str, Any]:
        processors = old.get("processors")
        return _kept(old, _SITE_FIELDS) | {
            "reported": processors is not None,
            "processors": 0 if processors is None else processors,
            "waiters": {str(job): self._earmarked(job, old["name"]) for job in old.get("waiters", ())},
        }

    def _earmarked(self, number: int, site: str) -> int:
        (job,) = [job for job in self._live if job["id"] == number]
        places = [job["places"][component] for component in job.get("earmarks", ())]
        return sum(size for name, size in places if name == site)

    def _queue(self, old: dict[str, Any], *, high: bool) -> dict[str, Any]:
        return _kept(old, _QUEUE_FIELDS) | {
            "high": high,
            "scan_due_at": _time(old.get("scan_due_at", "infinite")),
            "seen": [[position, self._seen(*numbers)] for position, *numbers in old.get("seen", ())],
        }

    def _key(self, old: dict[str, Any]) -> list[Any]:
        return [old["file"], old.get("chunk"), self._number[old["target"]]]

    def _transfer(self, old: dict[str, Any]) -> dict[str, Any]:
        return _kept(old, _TRANSFER_FIELDS) | {
            "key": self._keys[old["id"]],
            "source": -1 if old["source"] is None else self._number[old["source"]],
            "estimate_s": _time(old["estimate_s"]),
            "jobs": {str(job): None for job in old["jobs"]},
            "failed_sources": [self._number[name] for name in old.get("failed_sources", ())],
        }

    def _whom(self, alarm: dict[str, Any]) -> int | str:
        whom: int | str = alarm["whom"]
        return self._number[whom] if alarm["what"] == "cooled_down" else whom


def _kept(old: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """These fields, as far as they were written: those with their default value were not."""
    return {name: old[name] for name in names if name in old}


def _time(time: float | str | None) -> float | None:
    """A time as it is encoded now: an infinite one as null."""
    return None if isinstance(time, str) else time
