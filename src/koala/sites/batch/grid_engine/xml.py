"""The XML of ``qstat``, ``qhost`` and ``qquota`` as plain values, from Grid Engine 6.2 on.

The text comes from outside and contains names that any user may choose: its size is limited, it may have no document
type (so that no entity is ever expanded), and it is parsed piece by piece, so that a long queue takes little memory.
"""

from __future__ import annotations

import calendar
import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import msgspec

from koala.sites.batch.system import BatchId, BatchOutputError

# A job takes about 700 characters, so this is a queue of a hundred thousand.
GRID_ENGINE_XML_CHARACTERS_MAX = 67_108_864
# Names may contain characters that XML forbids, and Grid Engine prints them unchanged.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?", re.ASCII)
_STATE = re.compile(r"[A-Za-z]{1,12}")
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?", re.ASCII)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?", re.ASCII)
_RUNNING = "running"
_REQUESTS = ("hard_request", "def_hard_request")
# State letters that keep a waiting job from starting.
_NOT_ELIGIBLE = set("hEdzsST")


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, or the part of a running job that has slots of one queue instance."""

    id: BatchId
    name: str
    owner: str
    state: str
    is_running: bool
    slots: int
    tasks: int = 1  # of a waiting array
    queues: tuple[str, ...] = ()  # that it requested
    environment: str | None = None
    started_at: float | None = None  # if it runs
    requests: tuple[tuple[str, str], ...] = ()  # of a running job, by the names of resources

    @property
    def limit_s(self) -> float | None:
        """The ``h_rt`` that it requested; None if it requested none, or an unintelligible one."""
        asked = dict(self.requests).get("h_rt")
        try:
            return _seconds(asked)
        except BatchOutputError:
            return None

    @property
    def is_in_error(self) -> bool:
        """True if it failed to start, and waits for a person to remove it."""
        return "E" in self.state and not self.is_running

    @property
    def is_eligible(self) -> bool:
        """True if it starts as soon as there is room."""
        return not self.is_running and not _NOT_ELIGIBLE & set(self.state)


class Resource(msgspec.Struct, frozen=True):
    """The amount of a resource. ``kind`` gives its place and sort: ``hc`` is the free amount of a host, ``qf`` is
    fixed for a queue, ``gl`` is a load value of the whole cell."""

    name: str
    kind: str
    text: str


class QueueInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A queue on one host. ``host_free`` and ``cell_free`` are the free slots that its host, or the whole cell,
    offers to all queues, if they are fewer than its own."""

    name: str
    host: str
    kinds: str
    state: str
    total: int
    used: int
    reserved: int
    host_free: int | None = None
    cell_free: int | None = None
    job_limit_s: float | None = None
    jobs: tuple[JobLine, ...] = ()
    resources: tuple[Resource, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        """True unless it has any state letter: disabled, suspended, in error, overloaded or silent, it starts
        nothing."""
        return not self.state and bool(set("BP") & set(self.kinds))

    def free(self, reserved_used_max: int) -> int:
        """Return the slots that are neither in use nor reserved. The output does not show which used slots are
        reserved: this assumes as many as possible, up to the given number."""
        return max(0, self.total - self.used - max(0, self.reserved - min(self.used, reserved_used_max)))


class SlotQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on slots that applies to us, with its use. Grid Engine shows no unused limits."""

    limit: int
    used: int
    host: str | None = None
    queue: str | None = None
    project: str | None = None
    environment: str | None = None


def read_cell(text: str) -> tuple[list[QueueInstance], list[JobLine]]:
    """Return the queue instances with their running jobs, and the waiting jobs by priority."""
    instances, pending = [], []
    for element in _elements(text, "job_info", ("Queue-List", "job_list")):
        if _tag(element) == "Queue-List":
            instances.append(_queue_instance(element))
        else:
            pending.append(_job(element))
    return instances, pending


def read_quotas(text: str) -> list[SlotQuota]:
    """Return the quotas on slots."""
    quotas = []
    for rule in _elements(text, "qquota_result", ("qquota_rule",)):
        for limit in rule:
            if _tag(limit) != "limit" or limit.get("resource") != "slots" or limit.get("value") is None:
                continue
            quotas.append(
                SlotQuota(
                    limit=_number(limit.get("limit")),
                    used=_number(limit.get("value")),
                    host=_text(rule, "hosts"),
                    queue=_text(rule, "queues"),
                    project=_text(rule, "projects"),
                    environment=_text(rule, "pes"),
                )
            )
    return quotas


def read_hosts(text: str) -> dict[str, tuple[Resource, ...]]:
    """Return the resources of each host from ``qhost``."""
    return {
        host.get("name", ""): tuple(
            Resource(each.get("name", ""), each.get("dominance", ""), each.text or "")
            for each in host
            if _tag(each) == "resourcevalue"
        )
        for host in _elements(text, "qhost", ("host",))
    }


def _elements(text: str, root: str, tags: tuple[str, ...]) -> Iterator[ElementTree.Element]:
    """Yield the elements with these tags, each complete when it comes and empty when the next one does. Running jobs
    are inside their queue; waiting jobs come last."""
    if len(text) > GRID_ENGINE_XML_CHARACTERS_MAX:
        raise BatchOutputError(
            f"more than {GRID_ENGINE_XML_CHARACTERS_MAX} characters (GRID_ENGINE_XML_CHARACTERS_MAX)"
        )
    if "<!DOCTYPE" in text:
        raise BatchOutputError("XML with a document type, which Grid Engine does not write")
    stream = io.StringIO(_NOT_XML.sub("?", text))
    last = None
    try:
        # Entities need a document type, which was refused.
        for _, element in ElementTree.iterparse(stream):  # noqa: S314
            last = element
            if _tag(element) in tags and element.get("state") != _RUNNING:
                yield element
                element.clear()
    except ElementTree.ParseError as problem:
        raise BatchOutputError(f"not XML: {problem}; it begins with {text.strip()[:80]!r}") from problem
    if last is None or _tag(last) != root:
        raise BatchOutputError(f"XML of something else than {root!r}")
    yield from (each for each in last.iter() if _tag(each) in tags and len(each) > 0)


def _tag(element: ElementTree.Element) -> str:
    """Return the tag without its name space, which varies between versions."""
    return str(element.tag).rpartition("}")[2]


def _queue_instance(element: ElementTree.Element) -> QueueInstance:
    name = _text(element, "name")
    if name is None or "@" not in name:
        raise BatchOutputError(f"a queue instance without a name: {name!r}")
    left: dict[str, int | None] = {"hc": None, "gc": None}
    limit_s = None
    resources = []
    for each in element:
        if _tag(each) != "resource":
            continue
        kind = each.get("type", "")
        resources.append(Resource(each.get("name", ""), kind, each.text or ""))
        if each.get("name") == "slots" and kind in left:
            left[kind] = _number(each.text)
        elif each.get("name") == "h_rt":
            limit_s = _seconds(each.text)
    return QueueInstance(
        name=name,
        host=name.partition("@")[2],
        kinds=_text(element, "qtype") or "",
        state=_text(element, "state") or "",
        total=_number(_text(element, "slots_total")),
        used=_number(_text(element, "slots_used")),
        reserved=_number(_text(element, "slots_resv") or "0"),
        host_free=left["hc"],
        cell_free=left["gc"],
        job_limit_s=limit_s,
        jobs=tuple(_job(each) for each in element if _tag(each) == "job_list"),
        resources=tuple(resources),
    )


def _job(element: ElementTree.Element) -> JobLine:
    # There may be a hundred thousand elements, so each is traversed once.
    texts = {each.tag: each.text or "" for each in element}
    number, state = _number(texts.get("JB_job_number")), texts.get("state", "")
    # Older versions truncate the short name.
    name = (texts.get("full_job_name") or texts.get("JB_name") or "").strip()
    owner = texts.get("JB_owner", "").strip()
    if number < 1 or not _STATE.fullmatch(state) or not name or not owner:
        raise BatchOutputError(f"a job that makes no sense: id {number}, name {name!r}, state {state!r}")
    granted = element.find("granted_pe") if "granted_pe" in texts else None
    asked = element.findall("hard_req_queue") if "hard_req_queue" in texts else ()
    is_running = element.get("state") == _RUNNING
    return JobLine(
        id=str(number),
        name=name,
        owner=owner,
        state=state,
        is_running=is_running,
        slots=_number(texts.get("slots")),
        tasks=_count_of_tasks(texts["tasks"]) if "tasks" in texts else 1,
        queues=tuple(each.text for each in asked if each.text),
        environment=None if granted is None else granted.get("name"),
        started_at=_utc_time(texts.get("JAT_start_time", "")) if is_running else None,
        requests=_requests(element) if is_running and not texts.keys().isdisjoint(_REQUESTS) else (),
    )


def _requests(element: ElementTree.Element) -> tuple[tuple[str, str], ...]:
    """Return what a job requested, and the defaults of resources that it did not request."""
    return tuple((each.get("name", ""), each.text or "") for each in element if each.tag in _REQUESTS)


def _utc_time(text: str) -> float | None:
    """Return seconds since the epoch; Univa's versions include milliseconds."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(group) for group in match.groups())
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return float(calendar.timegm((year, month, day, hour, minute, second)))


def _text(element: ElementTree.Element, tag: str) -> str | None:
    """Return the text of the first child of that name; None if it is missing or empty."""
    for each in element:
        if _tag(each) == tag:
            return (each.text or "").strip() or None
    return None


def _number(text: str | None) -> int:
    if text is None or not _NUMBER.fullmatch(text.strip()):
        raise BatchOutputError(f"{text!r} is not a number")
    return int(float(text))


def _seconds(text: str | None) -> float | None:
    """Return a time limit of a queue, as seconds or hours:minutes:seconds; None if there is none."""
    if text is None or text.strip().lower() in ("infinity", "none", ""):
        return None
    seconds = 0.0
    for part in text.strip().split(":"):
        seconds = seconds * 60.0 + abs(_number(part or "0"))
    return seconds


def _count_of_tasks(text: str) -> int:
    """Return the number of tasks in ``1-9:2,12``. A truncated list counts the tasks that it names."""
    count = 0
    for each in text.split(","):
        match = _TASKS.fullmatch(each.strip())
        if match is not None:
            first, last, step = (int(group) if group else None for group in match.groups())
            first = first or 0
            count += max(0, ((last if last is not None else first) - first) // (step or 1) + 1)
    return max(1, count)
