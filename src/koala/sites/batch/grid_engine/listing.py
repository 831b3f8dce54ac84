"""A listing of a Grid Engine cell: the script that asks for it, and the parser of what ``qstat`` and others print.

How XML becomes queues and jobs is in ``koala.sites.batch.grid_engine.xml``. Here is what they mean: which slots our
users could get, who has them, and which jobs are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from koala.model.grid import BatchSettings, Claims
from koala.model.nodes import NamedNode, few_alike, node_classes
from koala.sites.batch.grid_engine.keys import keys_of
from koala.sites.batch.grid_engine.needs import Needs, requests_of, wants_of
from koala.sites.batch.grid_engine.nodes import MEMORY_LOAD, CellNodes
from koala.sites.batch.grid_engine.xml import (
    JobLine,
    QueueInstance,
    Resource,
    SlotQuota,
    read_cell,
    read_hosts,
    read_quotas,
)
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchState,
    EndKind,
)
from koala.sites.shell_script import assign, call, shell_file

# In front of the name of each part of what is printed. No line of Grid Engine begins so.
_MARK = "koala: "
_PARTS = ("user", "jobs", "queues", "environment", "quotas", "errors", "complexes", "hosts", "end")
# A listing may lack these.
_PARTS_OF_RESOURCES = ("complexes", "hosts")


def listing_script(settings: BatchSettings) -> str:
    """For ``ListingReader.read``."""
    keys = keys_of(settings)
    of_tasks = [each for each in (keys.memory_complex, keys.gpu_complex) if each is not None]
    asked = ",".join([*requests_of(settings.submit_options), *of_tasks, MEMORY_LOAD])
    words = ["koala_listing", keys.parallel_environment or "", f",{asked},", keys.gpu_kind_complex or ""]
    if settings.queue is not None:
        words += ["-q", settings.queue]
    if keys.parallel_environment is not None:
        words += ["-pe", keys.parallel_environment]
    return assign(koala_job_prefix=JOB_NAME_PREFIX) + shell_file(__package__, "listing.sh") + call(*words)


class _Slots(msgspec.Struct, frozen=True):
    """Slots that could be had if nobody were there, and how many of them are free."""

    total: int
    free: int

    def within(self, bounds: Iterable[_Slots]) -> _Slots:
        """No more than each of these."""
        total, free = self.total, self.free
        for bound in bounds:
            total, free = min(total, bound.total), min(free, bound.free)
        return _Slots(max(0, total), max(0, free))


class ListingReader:
    """Reads listings of a site with these settings."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._queue = settings.queue
        self._project = settings.account
        self._environment = keys_of(settings).parallel_environment
        self._requests = requests_of(settings.submit_options)
        self._reserves = settings.claims is Claims.RESERVATION

    def read(self, printed: str) -> BatchListing:
        """Raises ``BatchOutputError`` for everything but a whole listing."""
        parts = _parts(printed)
        user = parts["user"].strip()
        instances, pending = read_cell(parts["jobs"])
        offered = set(parts["queues"].split())
        quotas = read_quotas(parts["quotas"])
        running = [job for instance in instances for job in instance.jobs]
        usable = [each for each in instances if each.name in offered and each.takes_jobs]
        ours_held = _held(instances, user)
        hosts = _hosts(parts["hosts"])
        needs = Needs(wants_of(parts["complexes"], self._requests), hosts)
        bounds = self._bounds(parts["environment"], running, quotas)
        # What we have of queues that would give us no more counts all the same.
        more = ours_held - _held(usable, user)

        def slots_for(needs: Needs) -> tuple[_Slots, dict[str, _Slots]]:
            by_host = self._by_host(instances, usable, quotas, user, needs)
            slots = self._in_all(by_host, instances, usable, needs)
            return _Slots(slots.total + more, slots.free).within(bounds), by_host

        slots, by_host = slots_for(needs)
        # Jobs of others do not ask for what ours do: one may start where no job of ours could.
        frees = {slots.free, slots_for(Needs())[0].free} if needs.wants else {slots.free}
        idle = min(free - self._taken_soon(pending, user, offered, free) for free in frees)
        processors = max(slots.total, ours_held + idle)
        sizes = CellNodes(self._settings, parts["complexes"], hosts).sizes(
            {host: (each.total, each.free) for host, each in by_host.items()}, instances, usable
        )
        return BatchListing(
            jobs=_our_jobs(running, pending, user, _reasons(parts["errors"])),
            processors=processors,
            others=processors - ours_held - idle,
            job_limit_s=_longest(usable),
            missing=self._missing(instances, offered, parts["environment"]),
            releases=tuple(_releases(usable, user)),
            nodes=node_classes((whole, free, ()) for whole, free in sizes.values()),
            named=few_alike(NamedNode(host, whole) for host, (whole, _) in sizes.items()),
        )

    def _missing(self, instances: list[QueueInstance], offered: set[str], environment: str) -> str:
        """What is wrong where a queue that is named, or all of them, has no place for us at all, or where there is no
        such parallel environment."""
        if self._environment is not None and not environment.strip():
            cure = "correct 'parallel_environment: ...' in the grid file; qconf -spl there lists them"
            return f"there is no parallel environment {self._environment}; {cure}"
        if self._queue is None:
            return ""
        names = {each.name for each in instances}
        gone = [each for each in self._queue.split(",") if not _may_match(each.strip(), names)]
        if not gone and names.isdisjoint(offered):
            gone = [self._queue]
        cure = "correct 'queue: ...' in the grid file; qstat -g c there lists the queues"
        return f"there is no queue {', '.join(gone)} that is open to this account; {cure}" if gone else ""

    def _by_host(
        self,
        instances: list[QueueInstance],
        usable: list[QueueInstance],
        quotas: list[SlotQuota],
        user: str,
        needs: Needs,
    ) -> dict[str, _Slots]:
        """The slots of queues that take jobs, by host. What a host offers is shared by all of its queues. Resources
        that our jobs want bound those that are free: how much there would be of them in an empty cell is not known.
        """
        found = {}
        most = {each.name: needs.slots(each) for each in usable}
        for host in dict.fromkeys(each.host for each in usable):
            here = [each for each in usable if each.host == host]
            used = sum(each.used for each in instances if each.host == host)
            bounds = [_Slots(each.host_free + used, each.host_free) for each in here if each.host_free is not None]
            bounds += [
                _Slots(quota.limit, quota.limit - quota.used)
                for quota in quotas
                if quota.host == host and self._concerns_us(quota)
            ]
            free = sum(_at_most(self._free(each, user), [most[each.name]], "q") for each in here)
            slots = _Slots(sum(each.total for each in here), free).within(bounds)
            found[host] = _Slots(slots.total, _at_most(slots.free, [most[each.name] for each in here], "h"))
        return found

    def _in_all(
        self,
        by_host: Mapping[str, _Slots],
        instances: list[QueueInstance],
        usable: list[QueueInstance],
        needs: Needs,
    ) -> _Slots:
        """The slots of all hosts, within what the whole cell offers."""
        used = sum(each.used for each in instances)
        cell = [_Slots(each.cell_free + used, each.cell_free) for each in usable if each.cell_free is not None]
        free = _at_most(sum(each.free for each in by_host.values()), map(needs.slots, usable), "g")
        return _Slots(sum(each.total for each in by_host.values()), free).within(cell)

    def _free(self, instance: QueueInstance, user: str) -> int:
        """Our own jobs are in reservations only where we claim by them."""
        return instance.free(instance.used if self._reserves else instance.used - _held((instance,), user))

    def _bounds(self, environment: str, running: list[JobLine], quotas: list[SlotQuota]) -> list[_Slots]:
        """What holds for the whole site: the slots of the parallel environment and the quotas in use."""
        bounds = [
            _Slots(quota.limit, quota.limit - quota.used)
            for quota in quotas
            if quota.host in (None, "*") and self._concerns_us(quota)
        ]
        if self._environment is not None and environment.strip():
            total = _environment_slots(environment)
            used = sum(job.slots for job in running if job.environment == self._environment)
            bounds.append(_Slots(total, total - used))
        return bounds

    def _concerns_us(self, quota: SlotQuota) -> bool:
        """One of some queues, projects or environments holds for a site that uses no other."""
        pairs = (
            (quota.queue, self._queue),
            (quota.project, self._project),
            (quota.environment, self._environment),
        )
        return all(quoted in (None, "*") or (own is not None and fnmatchcase(own, quoted)) for quoted, own in pairs)

    def _taken_soon(self, pending: list[JobLine], user: str, offered: set[str], free: int) -> int:
        """What jobs of others that wait will take. Grid Engine passes by one for which there is no room."""
        taken = 0
        for job in pending:
            if _is_ours(job, user) or not job.is_eligible:
                continue
            if job.queues and not any(_may_match(each, offered) for each in job.queues):
                continue
            if job.slots > 0:
                taken += job.slots * min(job.tasks, (free - taken) // job.slots)
        return taken


def _at_most(slots: int, most: Iterable[dict[str, int]], layer: str) -> int:
    """No more slots than any of these says for a layer."""
    return min([slots, *(each[layer] for each in most if layer in each)])


def _parts(printed: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    name = None
    lines: list[str] = []
    for line in (*printed.split("\n"), _MARK):
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        if name is not None:
            parts[name] = "\n".join(lines)
        elif "".join(lines).strip():
            raise BatchOutputError(f"the listing begins with {lines[0][:80]!r}")
        name, lines = line[len(_MARK) :].strip(), []
    without = tuple(each for each in _PARTS if each not in _PARTS_OF_RESOURCES)
    if tuple(parts) not in (_PARTS, without):
        raise BatchOutputError(f"the listing has the parts {', '.join(parts) or 'none'}; it is not whole")
    return dict.fromkeys(_PARTS_OF_RESOURCES, "") | parts


def _hosts(printed: str) -> Mapping[str, Sequence[Resource]]:
    """What ``qhost`` tells of the resources of hosts. Where that makes no sense they take no slot away."""
    try:
        return read_hosts(printed) if printed.strip() else {}
    except BatchOutputError:
        return {}


def _longest(usable: list[QueueInstance]) -> float | None:
    """How long a job may run in one queue or another; None when some queue knows no limit."""
    limits = [each.job_limit_s for each in usable]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _environment_slots(printed: str) -> int:
    for line in printed.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "slots" and words[1].isascii() and words[1].isdigit():
            return int(words[1])
    raise BatchOutputError(f"qconf -sp tells of no slots: {printed[:80]!r}")


def _may_match(pattern: str, names: Iterable[str]) -> bool:
    """Whether a list of queues, as a job asks for it, may mean one of these instances or queues.

    Groups of hosts and expressions with operators may: here nobody knows what they stand for.
    """
    for each in pattern.split(","):
        queue, _, host = each.partition("@")
        if set("|&!()") & set(each):
            return True
        for name in names:
            name_queue, _, name_host = name.partition("@")
            if not fnmatchcase(name_queue, queue or "*"):
                continue
            if not host or not name_host or host.startswith("@") or fnmatchcase(name_host, host):
                return True
    return False


def _held(instances: Iterable[QueueInstance], user: str) -> int:
    """The slots that our jobs have there."""
    return sum(job.slots for instance in instances for job in instance.jobs if _is_ours(job, user))


def _is_ours(job: JobLine, user: str) -> bool:
    return job.owner == user and job.name.startswith(JOB_NAME_PREFIX) and len(job.name) > len(JOB_NAME_PREFIX)


def _releases(instances: Iterable[QueueInstance], user: str) -> Iterator[tuple[float, int]]:
    """When jobs of others reach the limit that they asked for, or that of their queue, if that is less."""
    for instance in instances:
        for job in instance.jobs:
            limits = [limit for limit in (job.limit_s, instance.job_limit_s) if limit is not None]
            if job.started_at is not None and limits and not _is_ours(job, user):
                yield job.started_at + min(limits), job.slots


def _reasons(printed: str) -> dict[BatchId, str]:
    """Why jobs are in error, of ``qstat -j``."""
    reasons: dict[BatchId, str] = {}
    job = ""
    for line in printed.splitlines():
        label, _, rest = line.partition(":")
        if label == "job_number":
            job = rest.strip()
        elif label.startswith("error reason") and rest.strip():
            reasons.setdefault(job, rest.strip())
    return reasons


def _our_jobs(
    running: list[JobLine], pending: list[JobLine], user: str, reasons: dict[BatchId, str]
) -> tuple[BatchJob, ...]:
    """A job stands once for each queue that it has slots of."""
    jobs: dict[BatchId, BatchJob] = {}
    for line in (*running, *pending):
        if not _is_ours(line, user):
            continue
        before = jobs.get(line.id)
        if before is None:
            jobs[line.id] = _our_job(line, reasons)
        else:
            jobs[line.id] = msgspec.structs.replace(before, processors=before.processors + line.slots)
    return tuple(jobs.values())


def _our_job(line: JobLine, reasons: dict[BatchId, str]) -> BatchJob:
    state, end, reason = _state_of(line), None, ""
    if line.is_in_error:
        reason = f"the job is in error ({line.state}): {reasons.get(line.id, 'Grid Engine does not say why')}"
        end = BatchEnd(kind=EndKind.SITE, reason=reason)
    token = line.name.removeprefix(JOB_NAME_PREFIX)
    return BatchJob(id=line.id, token=token, state=state, processors=line.slots, reason=reason, end=end)


def _state_of(line: JobLine) -> BatchState:
    if "d" in line.state or "z" in line.state:
        return BatchState.ENDING
    if line.is_running:
        return BatchState.RUNNING
    return BatchState.HELD if "h" in line.state else BatchState.PENDING
