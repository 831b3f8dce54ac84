"""Rows and batches for tests of the store: valid by default, with the one field that a test cares about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from koala.files import CatalogueEntry, Replica
from koala.model.api import Scope
from koala.model.facts import TurnEntry
from koala.model.messages import (
    AnyEvent,
    EndedJob,
    Event,
    JobOutcome,
    JobSubmitted,
    SiteReported,
    StartComponent,
    Tick,
)
from koala.model.request import Application, Component, Request
from koala.store import Batch, ComponentRow, JournalRow, Store, StoredJob, TokenRow, TransferRow
from koala.store.rows import RecordRow

OpenStore: TypeAlias = Callable[[str | Path], Store]

CHECKSUM = "0f" * 32

REQUEST = Request(components=(Component(processors=4, application=Application(executable="/bin/true")),), name="pi")


def job_row(number: int = 1, **fields: Any) -> StoredJob:
    """Return a waiting job."""
    usual: dict[str, Any] = {
        "id": number,
        "owner": "ann",
        "name": "pi",
        "state": "waiting",
        "priority": "low",
        "job_type": "plain",
        "kind": "non-fixed",
        "policy": "WF",
        "processors": 4,
        "submitted_at": 10.0,
        "since": 10.0,
    }
    return StoredJob(**{**usual, **fields})


def component_row(name: str = "1.1", **fields: Any) -> ComponentRow:
    """Return a component that was just claimed."""
    usual: dict[str, Any] = {
        "token": name,
        "job": 1,
        "run": 1,
        "part": 0,
        "parts": 1,
        "site": "delft",
        "processors": 4,
        "claimed_at": 20.0,
    }
    return ComponentRow(**{**usual, **fields})


def transfer_row(name: str = "t1", **fields: Any) -> TransferRow:
    """Return a transfer that has just begun."""
    usual: dict[str, Any] = {
        "id": name,
        "file": "data",
        "source": "leiden",
        "target": "delft",
        "size_bytes": 1_000,
        "started_at": 15.0,
        "jobs": (1,),
    }
    return TransferRow(**{**usual, **fields})


def file_entry(name: str = "data", *sites: str) -> CatalogueEntry:
    """Return a file with replicas at these sites."""
    replicas = tuple(Replica(site=site, size_bytes=7, checksum=CHECKSUM) for site in sites)
    return CatalogueEntry(name=name, size_bytes=7, checksum=CHECKSUM, replicas=replicas)


def token_row(name: str = "k1", **fields: Any) -> TokenRow:
    """Return a token that was never used."""
    usual = {
        "id": name,
        "user": "ann",
        "scopes": [Scope.READ, Scope.SUBMIT],
        "secret_hash": f"hash of {name}",
        "created_at": 5.0,
    }
    return TokenRow(**{**usual, **fields})


def entry(seq: int, body: AnyEvent | TurnEntry, **fields: Any) -> JournalRow:
    """Return the entry of a message."""
    is_event = isinstance(body, Event)
    at = body.at if isinstance(body, Event) else float(seq)
    usual: dict[str, Any] = {
        "seq": seq,
        "at": at,
        "kind": "event" if is_event else "command",
        "what": type(body).__name__,
    }
    return JournalRow(**{**usual, **fields, "body": body})


def tick(seq: int, at: float | None = None) -> JournalRow:
    """Return an event of no job and no site."""
    return entry(seq, Tick(at=float(seq) if at is None else at))


def submitted(seq: int, job: int, request: Request = REQUEST) -> JournalRow:
    """Return the submission of a job."""
    ended = (EndedJob(job=job + 1_000, outcome=JobOutcome.DONE, started=True),)
    return entry(seq, JobSubmitted(at=float(seq), job=job, request=request, ended=ended), job=job)


def started(seq: int, job: int = 1, site: str = "delft") -> JournalRow:
    """Return the start of the job's first component."""
    body = StartComponent(job=job, token=f"{job}.1", site=site, processors=4, component=0, part=0, parts=1)
    return entry(seq, body, job=job, site=site)


def reported(seq: int, site: str, at: float) -> JournalRow:
    """Return a report of a site."""
    return entry(seq, SiteReported(at=at, site=site, processors=32, others=seq), site=site)


def numbered_records(number: int) -> list[RecordRow]:
    """Return meaningless records of a scheduler after this many batches; see below."""
    if not number:
        return []
    kept = [RecordRow("job", str(each), b'{"id":%d}' % each) for each in range(max(1, number - 4), number + 1)]
    return [*kept, RecordRow("queue", "low", b'{"number":%d}' % number)]


def numbered_batch(number: int, entries: int = 3) -> Batch:
    """Return a batch that touches every table, with the number in its every row."""
    first = (number - 1) * entries + 1
    events = tuple(submitted(first + index, number) for index in range(entries - 1))
    command = started(first + entries - 1, number, site=f"site{number}")
    return Batch(
        entries=(*events, command),
        outbox=(command.seq,),
        settled=(command.seq - entries,) if number > 1 else (),
        jobs=(job_row(number, name=f"job {number}"),),
        components=(component_row(f"{number}.1", job=number),),
        transfers=(transfer_row(f"t{number}", jobs=(number,)),),
        files=(file_entry(f"file {number}", "delft"), file_entry(f"file {number - 1}")),
        records=(*numbered_records(number)[-2:], *([RecordRow("job", str(number - 5), None)] * (number > 5))),
    )
