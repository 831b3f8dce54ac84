"""How jobs ended that Grid Engine no longer lists, from ``qacct``.

``qacct`` shows a job two or three seconds after its end, and for as long as the site keeps its accounting file. It
never shows a job that was deleted before it started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from koala.sites.batch.system import JOB_NAME_PREFIX, BatchEnd, BatchId, BatchJob, BatchOutputError, EndKind
from koala.sites.shell_script import call, shell_file

# Values of "failed" in sge_status(5) after which the job itself ran and its exit status is real.
_RAN = {0, 12, 13, 14, 15, 16, 30}
_LIMIT_ENFORCED = 37
_BY_SIGNAL = {17, 100}
# Signals that come from outside: qdel and limits kill; nodes that shut down terminate.
_FROM_OUTSIDE = {128 + 9: "killed", 128 + 15: "terminated"}

_END = "koala: end"
_NUMBER = re.compile(r"(\d{1,9})(?:\.\d*)?", re.ASCII)
_TIME_LIMIT = re.compile(r"\bh_rt=(\d{1,12})\b", re.ASCII)
_NOBODY = ("", "NONE", "undefined", "UNKNOWN")


def history_script(jobs: Sequence[BatchJob]) -> str:
    """Return the script whose output ``read_history`` parses."""
    return shell_file(__package__, "history.sh") + call("koala_history", *(job.id for job in jobs))


def read_history(printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
    """Return the ends of jobs. A record counts if it has a job's number and name: a reused number has another name.

    Processes on other nodes may have records of their own, which look like the job's and come in any order; but none
    of them ran longer than the job itself. The longest record counts, and the last of equally long ones.
    """
    lines = printed.rstrip().split("\n")
    if lines[-1] != _END:
        raise BatchOutputError(f"qacct's answer is not whole; it ends with {lines[-1][:80]!r}")
    names = {job.id: JOB_NAME_PREFIX + job.token for job in jobs}
    longest: dict[BatchId, dict[str, str]] = {}
    for record in _records(lines[:-1]):
        number = record.get("jobnumber", "")
        if number not in names or names[number] != record.get("jobname"):
            continue
        # Only Univa's records tell them apart.
        if record.get("pe_taskid", "NONE") not in _NOBODY:
            continue
        if number not in longest or _ran_s(record) >= _ran_s(longest[number]):
            longest[number] = record
    return {number: _end(record) for number, record in longest.items()}


def _records(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    record: dict[str, str] = {}
    for line in lines:
        if line.startswith("====="):
            if record:
                yield record
            record = {}
            continue
        name, _, value = line.strip().partition(" ")
        record.setdefault(name, value.strip())
    if record:
        yield record


def _end(record: dict[str, str]) -> BatchEnd:
    failed, status = _code(record, "failed"), _code(record, "exit_status")
    # "100 : assumedly after job"
    reason = f"failed {record['failed']}" if failed != 0 else ""
    if failed == 0 and status == 0 and _did_nothing(record):
        return BatchEnd(kind=EndKind.CANCELLED, reason="deleted by force, or lost with its node")
    if failed in _RAN:
        return BatchEnd(kind=EndKind.ITSELF, exit_code=status, reason=reason)
    if failed == _LIMIT_ENFORCED or (failed in _BY_SIGNAL and _limit_reached(record)):
        return BatchEnd(kind=EndKind.TIME_LIMIT, exit_code=status, reason=reason)
    if failed not in _BY_SIGNAL:
        return BatchEnd(kind=EndKind.SITE, reason=reason)
    # Only Univa's qacct knows who it was.
    who = record.get("deleted_by", "NONE").split(" ")[0]
    if who not in _NOBODY:
        return BatchEnd(kind=EndKind.CANCELLED, exit_code=status, reason=f"deleted by {who}")
    if status in _FROM_OUTSIDE:
        return BatchEnd(kind=EndKind.CANCELLED, exit_code=status, reason=f"{_FROM_OUTSIDE[status]} ({reason})")
    return BatchEnd(kind=EndKind.ITSELF if status > 128 else EndKind.SITE, exit_code=status, reason=reason)


def _limit_reached(record: dict[str, str]) -> bool:
    """Return True if it ran as long as it was allowed to. In some versions the category contains what it asked
    for."""
    asked = _TIME_LIMIT.search(f"{record.get('category', '')} {record.get('hard_resources', '')}")
    return asked is not None and _ran_s(record) >= int(asked[1])


def _ran_s(record: dict[str, str]) -> int:
    match = _NUMBER.match(record.get("ru_wallclock", ""))
    return 0 if match is None else int(match[1])


def _did_nothing(record: dict[str, str]) -> bool:
    """Return True if it had no page fault: every process has some, so the qmaster invented the record."""
    return record.get("ru_minflt") == "0" and record.get("ru_nvcsw") == "0"


def _code(record: dict[str, str], field: str) -> int:
    match = _NUMBER.match(record.get(field, ""))
    if match is None:
        raise BatchOutputError(f"qacct: {field} is {record.get(field)!r}")
    return int(match[1])
