"""A played site: the content of a script decides the answer, and the scripts of its batch system are plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from koala.model.grid import BatchSettings, Claims, Containers, Site
from koala.model.launch import Launch
from koala.model.messages import Token
from koala.sites.batch.check.check import CheckContext, Finding, check_batch_site, steps_for
from koala.sites.batch.system import (
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchOutputError,
    BatchSubmission,
    NodeLoad,
    WantedReservation,
)
from koala.sites.batch.systems import SYSTEMS
from koala.sites.remote_shell import ShellResult
from tests.support.batch_settings import batch_settings

PARTITIONS = """\
PartitionName=low AllowGroups=ALL AllowAccounts=ALL Default=NO MaxTime=UNLIMITED RootOnly=NO State=UP TotalCPUs=8
PartitionName=main AllowGroups=ALL AllowAccounts=ALL Default=YES MaxTime=1-00:00:00 RootOnly=NO State=UP TotalCPUs=16
groups users physics
"""
QUEUES = """\
CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE
--------------------------------------------------------------------------------
all.q                             1.83      1      0      5      6      0      0
long.q                            -NA-      0      0      0     12      0     12
"""
ENVIRONMENT = "pe_name            mpi\nslots              999\nallocation_rule    $fill_up\ncontrol_slaves     TRUE\n"

NOW = 1_000_000.0
OWNER = "here:/state site alpha"


class PlainSystem:
    """A batch system whose scripts are words; a listing is JSON."""

    def __init__(self, settings: BatchSettings) -> None:
        self.settings = settings

    def submit(self, submission: BatchSubmission) -> str:
        settings = self.settings
        launch: Launch = submission.launch
        words = (settings.queue, settings.account, launch.processors, submission.home, *settings.submit_options)
        return f"SUBMIT {' '.join(map(str, words))}\n"

    def parse_submitted(self, printed: str) -> BatchId:
        if not printed.strip().isdigit():
            raise BatchOutputError(f"no id: {printed!r}")
        return printed.strip()

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        return complaint

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        return False

    def is_for_what_it_asks(self, refusal: str) -> bool:
        return False

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        return f"CANCEL {token} {' '.join(ids)}\n"

    def listing(self) -> str:
        return "LISTING\n"

    def parse_listing(self, printed: str) -> BatchListing:
        try:
            return msgspec.json.decode(printed, type=BatchListing)
        except msgspec.DecodeError:
            raise BatchOutputError("no listing") from None

    def history(self, jobs: Sequence[BatchJob]) -> str:
        return "HISTORY\n"

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        return {}

    def on_node(self) -> str:
        return 'koala_nodes() { echo here 2; }\nkoala_on_node() { shift; exec "$@"; }\n'

    def reserve(self, wanted: WantedReservation) -> str:
        return f"RESERVE {wanted.name} {wanted.processors} {wanted.begin_s:.0f} {wanted.length_s:.0f}\n"

    def parse_reserved(self, printed: str) -> str:
        if not printed.strip():
            raise BatchOutputError("nothing is granted")
        return printed.strip()

    def unreserve(self, name: str) -> str:
        return f"UNRESERVE {name}\n"

    def loads(self) -> str:
        return "LOADS\n"

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        return []

    def version(self) -> str:
        return "VERSION\n"


def listing(*jobs: BatchJob, processors: int = 16, others: int = 0) -> str:
    """Return the output of a listing."""
    return msgspec.json.encode(BatchListing(jobs=jobs, processors=processors, others=others)).decode()


Reaction = str | ShellResult | OSError | Callable[[str], str | ShellResult]

# The answers of a site without problems; the first part that a script contains decides.
HEALTHY: dict[str, Reaction] = {
    "koala-answers": "koala-answers\n",
    "koala resources": "koala nodes\nn1|idle|0/16/0/16|main*|up|infinite\nkoala resources\n",
    "uname -sm": "Linux x86_64\n",
    "date +%s": f"{NOW:.0f}\n",
    "df -Pk": "there\n/share\n/dev/x 1000000000 0 500000000 1% /\n",
    "mpiexec": "/opt/bin/mpiexec\nHYDRA build details:\n    Version:          4.1\n",
    "rsync": "/usr/bin/rsync\n",
    "squeue": "",
    "qacct": "",
    "VERSION": "batch 1.0\n",
    "scontrol ping": "Slurmctld(primary) at head is UP\n",
    "show partition": PARTITIONS,
    "qhost": "",
    "qstat -g c": QUEUES,
    "qconf -spl": "mpi\nsmp\n",
    "qconf -sp ": ENVIRONMENT,
    "qconf -sq ": "qname all.q\npe_list               make smp \\\n                      mpi\n",
    "LISTING": listing(),
    "SUBMIT": "17\n",
    "RESERVE": "granted\n",
    "done": "done\n",
    "cat seen": ShellResult(code=0, stdout=b"n1 1 abcd\nn2 1 abcd\n", stderr=b"koala check ran on n1\n"),
}


class PlayedSite:
    """Answers like a healthy site, except for the given reactions. Time passes with each question."""

    def __init__(self, reactions: dict[str, Reaction], asking_takes_s: Callable[[str], float]) -> None:
        self.reactions = {**reactions, **{part: said for part, said in HEALTHY.items() if part not in reactions}}
        self.scripts: list[str] = []
        self.now = NOW
        self.asking_takes_s = asking_takes_s

    async def run(self, text: str, *, timeout_s: float) -> ShellResult:
        self.scripts.append(text)
        self.now += self.asking_takes_s(text)
        await asyncio.sleep(0)
        for part, reaction in self.reactions.items():
            if part in text:
                return self._answer(reaction, text)
        return ShellResult(code=0, stdout=b"", stderr=b"")

    async def close(self) -> None:
        """Close nothing: nothing is open."""

    async def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds

    def _answer(self, reaction: Reaction, text: str) -> ShellResult:
        if isinstance(reaction, OSError):
            raise reaction
        said = reaction(text) if callable(reaction) else reaction
        return said if isinstance(said, ShellResult) else ShellResult(code=0, stdout=said.encode(), stderr=b"")


def refused(words: str, code: int = 1) -> ShellResult:
    """Return the answer of a program that complained."""
    return ShellResult(code=code, stdout=b"", stderr=words.encode())


def played(
    reactions: dict[str, Reaction] | None = None,
    *,
    kind: str = "slurm",
    run: bool = False,
    processors: int = 8,
    file_server: str | None = None,
    containers: Containers | None = None,
    asking_takes_s: float | Callable[[str], float] = 0.01,
    **settings: Any,
) -> tuple[dict[str, Finding], PlayedSite]:
    """What a check of such a site finds, by step, and the site."""
    batch = batch_settings("/share", **{"claims": Claims.BARRIER, **settings})
    checks = SYSTEMS[kind].parts().checks
    site = Site(
        name="alpha", processors=processors, kind=kind, file_server=file_server, containers=containers, batch=batch
    )
    takes_s = asking_takes_s if callable(asking_takes_s) else lambda _: asking_takes_s
    place = PlayedSite(reactions or {}, takes_s)
    context = CheckContext(
        site,
        place,
        PlainSystem,
        checks,
        owner=OWNER,
        clock=lambda: place.now,
        nonce="abcd",
        patience_s=20.0,
        sleep=place.sleep,
    )

    async def collect() -> list[Finding]:
        return [finding async for finding in check_batch_site(context, steps_for(site, checks, run=run))]

    found = asyncio.run(collect())
    return {finding.step: finding for finding in found}, place
