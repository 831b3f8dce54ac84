"""What the live demo submits, and when: the files, the four jobs, and what is waited for between them.

Nothing is timed but by the grid itself: the next step is taken when the journal says that the one before has come
about. The jobs are the files of ``koala/examples/demo``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from koala.cli.demo.chronicle import Chronicle
    from koala.client import Client

# At the 8 Mbit/s of the demo's links these take 2 s and 6 s.
PLATE_BYTES = 2_000_000
ALARM_BYTES = 6_000_000
MPI_JOB, PLAIN_JOB = "laplace", "pair"


def mpi_is_installed() -> bool:
    """Whether this Python environment can run the MPI job: the extra ``mpi`` brings what it needs."""
    from importlib.util import find_spec

    from koala.daemon.launches import search_path

    return bool(search_path()) and find_spec("mpi4py") is not None and find_spec("numpy") is not None


class DemoStory:
    """The steps of the demo on one daemon. ``first`` is the job that is split."""

    def __init__(self, client: Client, chronicle: Chronicle, directory: Path, *, seed: int, mpi: bool) -> None:
        self.first: int | None = None
        self._client = client
        self._chronicle = chronicle
        self._directory = directory
        self._random = random.Random(seed)
        self._mpi = mpi

    def steps(self) -> Iterator[None]:
        """Goes through the story; gives the caller its turn whenever something must be waited for."""
        chronicle = self._chronicle
        self._register("plate.dat", PLATE_BYTES, "berlin", "cracow")
        self._register("alarm.dat", ALARM_BYTES, "amsterdam")
        # No site has 8 processors. Amsterdam and berlin get it, and amsterdam lacks the file.
        self.first = self._submit(MPI_JOB if self._mpi else PLAIN_JOB)
        while self.first not in chronicle.started and self.first not in chronicle.ends:
            yield
        # Its file is on the way to cracow when the next one takes what is still idle there: it will be preempted.
        submitted = [self.first, self._submit("alarm"), self._submit("sweep")]
        yield
        submitted.append(self._submit("fragile"))
        while any(job not in chronicle.ends for job in submitted):
            yield

    def _register(self, name: str, size_bytes: int, *sites: str) -> None:
        path = self._directory / name
        path.write_bytes(self._random.randbytes(size_bytes))
        for site in sites:
            self._client.register(name, site, path=str(path))
        self._chronicle.read(self._client)

    def _submit(self, name: str) -> int:
        text = (resources.files("koala") / "examples" / "demo" / f"{name}.yaml").read_text("utf-8")
        job = self._client.submit(text, source=f"{name}.yaml").job
        self._chronicle.introduce(job)
        if job.state == "waiting":
            # The journal tells what was decided; why nothing could be is in the job's own story.
            why = self._client.explain(job.id).story
            self._chronicle.read(self._client)
            for line in why[1:]:
                self._chronicle.add(line.at, job.id, line.text.partition(";")[0])
        return job.id
