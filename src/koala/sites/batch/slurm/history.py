"""How jobs ended that a listing no longer shows: ``scontrol show job`` knows it for a while, ``sacct`` for ever.

A job is identified by its number, its name and its submission time, since numbers are reused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from koala.sites.batch.slurm.states import accounted_end_of, end_of, exit_code, state_of
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchOutputError,
    BatchState,
    EndKind,
)

# The line between the outputs of the two commands.
_SACCT_LINE = "koala sacct"
_SHOWN_WORD = "JobId="
# The name that sacct gives to a job if the database received its end before its start, or without it.
_UNNAMED = "allocation"


def parse_history(printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
    """Parse ``scontrol show job -o`` and ``sacct``; lines about other jobs are ignored."""
    wanted = {job.id: job for job in jobs}
    shown, _, accounted = printed.partition(f"{_SACCT_LINE}\n")
    lines = [line for line in shown.split("\n") if line.strip()]
    if lines and not lines[0].startswith(_SHOWN_WORD):
        raise BatchOutputError(f"{lines[0][:200]!r} is not a job")
    ends = _accounted_ends(accounted.splitlines(), wanted)
    for line in lines:
        # The remaining lines belong to values with newlines, such as another job's name.
        if line.startswith(_SHOWN_WORD):
            ends |= _shown_end(line, wanted)
    return ends


def _shown_end(line: str, wanted: dict[BatchId, BatchJob]) -> dict[BatchId, BatchEnd]:
    fields = dict(_pairs(line))
    job = wanted.get(fields.get("JobId", ""))
    if job is None or not _is_same(job, fields.get("JobName", ""), fields.get("SubmitTime", "")):
        return {}
    if "JobState" not in fields:
        raise BatchOutputError(f"{line[:200]!r} is not a job")
    word, reason = fields["JobState"], fields.get("Reason", "")
    if state_of(word, reason) is not BatchState.OVER:
        return {}
    return {job.id: end_of(word, reason, exit_code(fields.get("ExitCode", "0:0")))}


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``A=x B=y z C=...``: a value may contain blanks, so it extends to the next name. The first
    value of a name counts: a user's comment comes late in the line."""
    seen = set()
    for match in re.finditer(r"(?:^|\s)([A-Za-z:/]+)=(.*?)(?=\s[A-Za-z:/]+=|\s*$)", line):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1], match[2]


def _accounted_ends(lines: Sequence[str], wanted: dict[BatchId, BatchJob]) -> dict[BatchId, BatchEnd]:
    """Return the ends of jobs by sacct. A requeued job has a line for each run, with the same name and another
    submission time. A component runs once, so the end of that run counts, and not the result of a later one."""
    runs: dict[BatchId, list[tuple[str, str]]] = {}
    for line in lines:
        fields = line.split("|")
        if len(fields) < 5:
            continue  # a line of another job's name, which may contain newlines
        # A job's name may contain anything, so the fields are taken from both ends.
        number, name, word, code, submitted = fields[0], "|".join(fields[1:-3]), fields[-3], fields[-2], fields[-1]
        job = wanted.get(number)
        if job is not None and _is_same(job, name, "" if number in runs else submitted):
            runs.setdefault(number, []).append((word, code))
    ends = {}
    for number, told in runs.items():
        if state_of(told[-1][0], "") is BatchState.OVER:
            each = [end for word, code in told if (end := accounted_end_of(word, exit_code(code))) is not None]
            forced = [end for end in each if end.kind is not EndKind.ITSELF]
            ends[number] = (forced or each)[-1]
    return ends


def _is_same(job: BatchJob, name: str, submitted: str) -> bool:
    """Return True if this is the job, and not a later one with the same number."""
    if name == _UNNAMED:
        return bool(job.submitted) and job.submitted == submitted
    if name != f"{JOB_NAME_PREFIX}{job.token}":
        return False
    return not (job.submitted and submitted) or job.submitted == submitted
