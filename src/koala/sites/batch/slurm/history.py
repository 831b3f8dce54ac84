"""How jobs ended that a listing shows no more: what ``scontrol show job`` tells for a while, and ``sacct`` for ever.

A job is known by its number, its name and the time of its submission, since numbers are given again.
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

# The line between what the two print.
_SACCT_LINE = "koala sacct"
_SHOWN_WORD = "JobId="
# What sacct calls a job of whose end the database heard before it heard of its start, or without.
_UNNAMED = "allocation"


def parse_history(printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
    """What ``scontrol show job -o`` and ``sacct`` print of jobs; what they say of others is passed over."""
    wanted = {job.id: job for job in jobs}
    shown, _, accounted = printed.partition(f"{_SACCT_LINE}\n")
    lines = [line for line in shown.split("\n") if line.strip()]
    if lines and not lines[0].startswith(_SHOWN_WORD):
        raise BatchOutputError(f"{lines[0][:200]!r} is not a job")
    ends = _accounted_ends(accounted.splitlines(), wanted)
    for line in lines:
        # What else there is are the other lines of something with newlines, as another job's name may have.
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
    """``A=x B=y z C=...``: a value may hold blanks, so it reaches up to the next name. The first of a name counts: a
    user's comment comes late in the line."""
    seen = set()
    for match in re.finditer(r"(?:^|\s)([A-Za-z:/]+)=(.*?)(?=\s[A-Za-z:/]+=|\s*$)", line):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1], match[2]


def _accounted_ends(lines: Sequence[str], wanted: dict[BatchId, BatchJob]) -> dict[BatchId, BatchEnd]:
    """A job that was put back into the queue has a line for each time that it ran, with the name that it always had
    and another time of submission. A component runs once, so that what ended that run counts, and not what a later
    one returned."""
    runs: dict[BatchId, list[tuple[str, str]]] = {}
    for line in lines:
        fields = line.split("|")
        if len(fields) < 5:
            continue  # a line of another job's name, which may hold newlines
        # A job's name may hold anything, so the fields are taken from both ends.
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
    """Whether this is the job, and not a later one that was given its number."""
    if name == _UNNAMED:
        return bool(job.submitted) and job.submitted == submitted
    if name != f"{JOB_NAME_PREFIX}{job.token}":
        return False
    return not (job.submitted and submitted) or job.submitted == submitted
