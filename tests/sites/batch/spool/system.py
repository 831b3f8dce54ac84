"""The batch system for tests as sites use it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from koala.model.grid import BatchSettings
from koala.model.messages import Token
from koala.sites.batch.system import (
    JOB_NAME_PREFIX,
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchState,
    BatchSubmission,
    EndKind,
    NodeLoad,
    WantedReservation,
)

_ENDS = {"done": EndKind.ITSELF, "cancelled": EndKind.CANCELLED}


class SpoolSystem:
    """It keeps all its jobs for ever, so that a listing tells of each end, and reserves nothing."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings

    def submit(self, submission: BatchSubmission) -> str:
        launch, settings = submission.launch, self._settings
        words = ["spsub", "--name", JOB_NAME_PREFIX + launch.token, "--processors", str(launch.processors)]
        words += ["--home", submission.home, "--log", f"{submission.home}/{submission.log}"]
        queue = settings.queue_for(launch.application.partition)
        words += [] if queue is None else ["--queue", queue]
        words += [word for key, value in settings.own for word in (f"--{key.removeprefix('job_')}", value)]
        return shlex.join([*words, *settings.submit_options, f"{submission.home}/{submission.script}"]) + "\n"

    def parse_submitted(self, printed: str) -> BatchId:
        if not printed.strip().isdecimal():
            raise BatchOutputError(f"{printed!r} is not the number of a job")
        return printed.strip()

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        return complaint.strip() if code in (1, 2) else None

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        return False

    def is_for_what_it_asks(self, refusal: str) -> bool:
        return "too many processors" in refusal

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        return f"spdel {JOB_NAME_PREFIX}{token}\n"

    def listing(self) -> str:
        return "spstat\n"

    def parse_listing(self, printed: str) -> BatchListing:
        try:
            told = json.loads(printed)
        except ValueError:
            raise BatchOutputError(f"{printed[:200]!r} is no listing") from None
        held = [job for job in told["jobs"] if job["state"] in ("running", "ending")]
        return BatchListing(
            jobs=tuple(_job(each) for each in told["jobs"] if each["name"].startswith(JOB_NAME_PREFIX)),
            processors=told["processors"],
            others=sum(job["processors"] for job in held if not job["name"].startswith(JOB_NAME_PREFIX)),
        )

    def history(self, jobs: Sequence[BatchJob]) -> str:
        return ":\n"

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        return {}

    def on_node(self) -> str:
        return 'koala_nodes() { echo "$(uname -n) $SPOOL_PROCESSORS"; }\nkoala_on_node() { shift; exec "$@"; }\n'

    def reserve(self, wanted: WantedReservation) -> str:
        return "echo 'it reserves nothing' >&2; exit 1\n"

    def parse_reserved(self, printed: str) -> str:
        raise BatchOutputError("it reserves nothing")

    def unreserve(self, name: str) -> str:
        return ":\n"

    def loads(self) -> str:
        return "spstat -n\n"

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        rows = [line.split() for line in printed.splitlines()]
        return [NodeLoad(int(processors), int(held), float(load)) for _, processors, held, load in rows]

    def version(self) -> str:
        return "echo spool 1\n"


def _job(told: dict[str, Any]) -> BatchJob:
    state = str(told["state"])
    return BatchJob(
        id=str(told["id"]),
        token=str(told["name"]).removeprefix(JOB_NAME_PREFIX),
        state=BatchState.OVER if state in _ENDS else BatchState(state),
        submitted=str(told["at"]),
        processors=told["processors"],
        end=BatchEnd(kind=_ENDS[state], exit_code=told["code"]) if state in _ENDS else None,
    )
