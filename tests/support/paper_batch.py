"""A batch system on paper: its jobs are files that a test writes, and nothing ever runs.

It follows the protocol of all batch systems, and ``sh`` runs its texts like theirs. So the engine of batch sites is
tested without a cluster, at every step of one.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.messages import Token
from koala.model.request import Application
from koala.sites.batch.system import (
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
from koala.sites.batch.timings import BatchTimings
from tests.support.batch_sites import BatchWatcher

WAIT_S = 120.0
PREFIX = "koala-"


# Sites are polled often, so that tests take no longer than necessary.
BRISK = BatchTimings(
    calm_first_s=0.2, calm_most_s=0.2, poll_first_s=0.05, rest_first_s=0.1, rest_most_s=0.1, fresh_s=0.0
)


def brisk(**fields: Any) -> BatchTimings:
    """Return these timings, with some of them replaced."""
    return msgspec.structs.replace(BRISK, **fields)


# The listing is empty, and the next poll of files would come long after a test has given up.
ONLY_AT_THE_SITE = brisk(
    calm_first_s=600.0, calm_most_s=600.0, poll_first_s=600.0, poll_most_s=600.0, pause_share=0.001
)


class PaperBatch:
    """A batch system whose jobs are files ``jobs/NAME`` with a state and, for an ended job, who ended it, its exit
    code and the reason. The state may be followed by ``@`` and the number of its processors, by default 2. Files
    ``jobs/NAME~...`` are further jobs of that name. ``history/ID`` has the end of a forgotten job. With a file
    ``down`` nothing works, and with a file ``no-history`` nothing reports forgotten jobs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("jobs", "history", "reservations"):
            (root / name).mkdir(parents=True)
        self.say(8, 0)

    # ------------------------------------------------------------------------------------ what a test does

    def say(self, processors: int, others: int) -> None:
        """Set the processors of the cluster."""
        (self.root / "total").write_text(f"{processors} {others}\n")

    def job(self, token: Token) -> Path:
        """Return the job of a component, whatever its mark."""
        start = f"{PREFIX}{token}-"
        found = [path for path in (self.root / "jobs").glob(f"{start}*") if "~" not in path.name]
        assert len(found) == 1, f"there is not one job of {token}"
        return found[0]

    def tokens(self) -> list[Token]:
        """Return the tokens of components with jobs."""
        return sorted(path.name.removeprefix(PREFIX).rpartition("-")[0] for path in (self.root / "jobs").iterdir())

    def set(self, token: Token, *words: str) -> None:
        """Set what a listing shows of a component's job."""
        job = self.job(token)
        fresh = self.root / f"{job.name}.test"
        fresh.write_text(" ".join(words) + "\n")
        fresh.rename(job)

    def lose(self, token: Token, told: str = "") -> None:
        """Remove the job from listings; history reports ``told``, if anything."""
        job = self.job(token)
        if told:
            (self.root / "history" / f"j.{job.name}").write_text(told + "\n")
        job.unlink()

    # --------------------------------------------------------------------------------- the protocol's texts

    def _text(self, body: str) -> str:
        down = "if [ -e down ]; then echo 'it is down' >&2; exit 1; fi"
        return f"cd {shlex.quote(str(self.root))} || exit 1\n{down}\n{body}"

    def submit(self, submission: BatchSubmission) -> str:
        name = f"{PREFIX}{submission.launch.token}"
        return self._text(
            "if [ -e refuse ] && cat refuse >&2 2>/dev/null; then exit 1; fi\n"
            f"echo pending >new.$$; mv new.$$ jobs/{name}\necho {submission.limit_s} >limit\necho j.{name}\n"
        )

    def parse_submitted(self, printed: str) -> BatchId:
        if not printed.startswith("j."):
            raise BatchOutputError(printed)
        return printed.strip()

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        return complaint if "never" in complaint else None

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        return "too many" in complaint

    def is_for_what_it_asks(self, refusal: str) -> bool:
        return "too long" in refusal

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        name = f"{PREFIX}{token}"
        return self._text(
            f"for job in jobs/{name} jobs/{name}~*; do\n"
            '    if [ -e "$job" ]; then echo over cancelled >new.$$; mv new.$$ "$job"; fi\n'
            f"done\necho {name} >>cancelled\n"
        )

    def listing(self) -> str:
        return self._text(
            'read -r said <total; echo "$said"\n'
            "for job in jobs/*; do\n"
            '    if [ -f "$job" ] && read -r said <"$job"; then echo "${job##*/} $said"; fi\ndone\n'
        )

    def parse_listing(self, printed: str) -> BatchListing:
        lines = [line.split() for line in printed.splitlines()]
        if len(lines[0]) != 2:
            raise BatchOutputError(printed)
        return BatchListing(
            jobs=tuple(_job(words) for words in lines[1:]),
            processors=int(lines[0][0]),
            others=int(lines[0][1]),
            job_limit_s=7_200.0,
        )

    def history(self, jobs: Sequence[BatchJob]) -> str:
        names = " ".join(f"history/{job.id}" for job in jobs)
        return self._text(
            "if [ -e no-history ]; then echo 'nobody knows' >&2; exit 1; fi\n"
            f"for job in {names}; do\n"
            '    if [ -e $job ] && read -r said <$job; then echo "${job##*/} $said"; fi\ndone\n'
        )

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        return {words[0]: _end(words[1:]) for words in map(str.split, printed.splitlines())}

    def on_node(self) -> str:
        return "koala_nodes() { echo here 1; }\n"

    def reserve(self, wanted: WantedReservation) -> str:
        return self._text(f"echo {wanted.processors} >reservations/{wanted.name}\necho r.{wanted.name}\n")

    def parse_reserved(self, printed: str) -> str:
        return printed.strip()

    def unreserve(self, name: str) -> str:
        return self._text(f"rm -f reservations/{name}\n")

    def loads(self) -> str:
        return ":\n"

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        return []

    def version(self) -> str:
        return "echo paper\n"


def _job(words: Sequence[str]) -> BatchJob:
    name, told, *rest = words
    state, _, processors = told.partition("@")
    return BatchJob(
        id=f"j.{name}",
        token=name.removeprefix(PREFIX).partition("~")[0],
        state=BatchState(state),
        processors=int(processors or 2),
        end=_end(rest) if rest else None,
    )


def _end(words: Sequence[str]) -> BatchEnd:
    kind, *rest = words
    code = int(rest[0]) if rest and rest[0].isdigit() else None
    return BatchEnd(kind=EndKind(kind), exit_code=code, reason=" ".join(rest[1:]))


class PaperSite(BatchWatcher):
    """A site under such a batch system below ``root``, polled often; a test plays the part of the components'
    scripts."""

    def __init__(self, root: Path, *, batch: PaperBatch | None = None, **options: Any) -> None:
        self.batch = batch or PaperBatch(root / "batch")
        self.settings = options.pop("settings", None) or BatchSettings(work_directory=str(root / "work"))
        super().__init__(self.settings, self.batch, options.pop("processors", 8), **{"timings": BRISK, **options})

    def again(self, **options: Any) -> PaperSite:
        """Return another object for the same site, as after a kill of the driver."""
        return PaperSite(self.root.parent, batch=self.batch, settings=self.settings, **options)

    async def __aenter__(self) -> PaperSite:
        await self.site.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.site.close()

    def write(self, token: Token, name: str, text: str = "") -> None:
        """Write a file of a component's directory, as its script does."""
        fresh = self.home(token) / f".{name.replace('/', '.')}.test"
        fresh.write_text(text)
        fresh.rename(self.home(token) / name)

    async def begin(self, token: Token, **fields: Any) -> None:
        """Take a component to the barrier."""
        await self.start(component(token, **fields))
        self.play_ready(token)
        await self.ready(token)

    def play_ready(self, token: Token) -> None:
        """Do what a script does when its job starts."""
        self.batch.set(token, "running")
        self.write(token, "pid", "1 - -\n")
        self.write(token, "ready", "here\n")

    def play_end(self, token: Token, words: str = "exited 0") -> None:
        """Do what a script does when its application has ended."""
        self.write(token, "exit", f"{words}\n")
        self.batch.set(token, "over", "itself")


def component(token: Token, **fields: Any) -> Launch:
    """Return a launch of one processor."""
    return Launch(
        **{"token": token, "job": 1, "processors": 1, "application": Application(script="exit 0"), **fields}
    )


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something has happened at the site."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)
