"""``koala demo``: a daemon of its own, four real jobs on three sites of this machine, shown by the journal.

Only the grid sets the pace: each step begins when the journal shows the end of the one before. The jobs are the files
of ``koala/examples/demo``. Whatever happens, the daemon is removed at the end unless it is to be kept.
"""

from __future__ import annotations

import random
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.demo.daemon import DemoDaemon
from koala.cli.demo.journal import JournalTimeline
from koala.cli.demo.picture import frame, remark_line
from koala.cli.demo.summary import DemoSummary, gather, print_summary
from koala.cli.errors import FailedError
from koala.cli.terminal.interrupts import interrupts, uninterrupted
from koala.cli.terminal.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from koala.client import Client

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The interval at which the journal is read and the picture drawn, and the limit of the whole story on a slow machine.
TICK_S = 0.15
STORY_S_MAX = 240.0
# At the 8 Mbit/s of the demo's links these take 2 s and 6 s.
PLATE_BYTES = 2_000_000
ALARM_BYTES = 6_000_000
MPI_JOB, PLAIN_JOB = "laplace", "pair"
WITHOUT_MPI = (
    "MPI is not installed here, so job A is a plain one of two components;\n"
    "with koala-scheduler[mpi] it is a parallel solver of the Laplace equation.\n"
)

# Shows what is new in a run.
Show = Callable[["Client", JournalTimeline], None]


def mpi_is_installed() -> bool:
    """Return True if this Python environment can run the MPI job: the extra ``mpi`` has what it needs."""
    from importlib.util import find_spec

    from koala.daemon.launches import search_path

    return bool(search_path()) and find_spec("mpi4py") is not None and find_spec("numpy") is not None


def show_live(
    *,
    seed: int = 1,
    still: bool = False,
    keep: bool = False,
    as_json: bool = False,
    mpi: bool | None = None,
    make_daemon: Callable[[], DemoDaemon] = DemoDaemon,
    story_s_max: float = STORY_S_MAX,
) -> None:
    """Run the demo and show it. Raises FailedError if it fails, KeyboardInterrupt after Ctrl-C; then, and without
    ``keep``, nothing of it is left. ``mpi`` says whether the MPI job can run; None finds out."""
    screen = console()
    mpi = mpi_is_installed() if mpi is None else mpi
    quiet = still or as_json
    if not mpi and not as_json:
        click.echo(WITHOUT_MPI)
    with interrupts(SIGNALS) as interrupted:

        def check() -> None:
            if interrupted():
                raise KeyboardInterrupt

        daemon = make_daemon()
        kept = False
        try:
            with _shown(screen, quiet=quiet) as show:
                summary = _perform(daemon, show, check, story_s_max, seed=seed, mpi=mpi)
            story_told = not screen.is_terminal and not quiet
            _tell(screen, summary, daemon, keep=keep, as_json=as_json, story_told=story_told)
            if summary.failed:
                raise daemon.failed(f"these jobs of the demo failed: {', '.join(summary.failed)}")
            kept = keep
        finally:
            if not kept:
                with uninterrupted(SIGNALS):
                    daemon.remove()


def end_kept(directory: Path) -> None:
    """End a demo that was kept, and remove everything of it."""
    daemon = DemoDaemon(directory)
    with uninterrupted(SIGNALS):
        daemon.remove()
    click.echo(f"The demo in {daemon.directory} is gone.")


@contextmanager
def _shown(screen: Console, *, quiet: bool) -> Iterator[Show]:
    """Yield what shows the run: a growing picture on a terminal, gone at the end; lines in a pipe; or nothing."""
    if quiet:
        yield lambda _client, _timeline: None
        return
    if not screen.is_terminal:
        printed = 0

        def print_remarks(_: Client, timeline: JournalTimeline) -> None:
            nonlocal printed
            for remark in timeline.remarks[printed:]:
                screen.print(remark_line(remark, timeline.names), soft_wrap=True)
            printed = len(timeline.remarks)

        yield print_remarks
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=screen, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        live.update(Text("Starting a daemon with three sites of this machine ...", style="dim"), refresh=True)

        def draw(client: Client, timeline: JournalTimeline) -> None:
            lines = frame(client.overview(), timeline, screen.width, screen.height)
            live.update(Group(*lines), refresh=True)

        yield draw


def _perform(
    daemon: DemoDaemon, show: Show, check: Callable[[], None], story_s_max: float, *, seed: int, mpi: bool
) -> DemoSummary:
    """Start the daemon, go through the story, and gather the results."""
    from koala.client import ClientError

    daemon.start(check)
    timeline = JournalTimeline()
    with daemon.client() as client:
        end = time.monotonic() + story_s_max
        try:
            for _ in _steps(client, timeline, daemon.directory, seed=seed, mpi=mpi):
                timeline.read(client)
                show(client, timeline)
                check()
                if time.monotonic() > end:
                    raise daemon.failed(f"the demo's jobs did not end within {story_s_max:g} s (STORY_S_MAX)")
                time.sleep(TICK_S)
                daemon.check()
            show(client, timeline)
            check()
            return gather(client, timeline, mpi=mpi)
        except ClientError as error:
            check()
            daemon.check()
            raise daemon.failed(f"the demo's daemon did not do as asked: {error.for_user()}") from None


def _steps(client: Client, timeline: JournalTimeline, directory: Path, *, seed: int, mpi: bool) -> Iterator[None]:
    """Perform the story: the files, the four jobs. Yields whenever something must be waited for."""
    draws = random.Random(seed)
    for name, size_bytes, sites in (
        ("plate.dat", PLATE_BYTES, ("berlin", "cracow")),
        ("alarm.dat", ALARM_BYTES, ("amsterdam",)),
    ):
        path = directory / name
        path.write_bytes(draws.randbytes(size_bytes))
        for site in sites:
            client.register(name, site, path=str(path))
    # No site has 8 processors. Amsterdam and berlin get it, and amsterdam lacks the file.
    first = _submit(client, timeline, MPI_JOB if mpi else PLAIN_JOB)
    while first not in timeline.started and first not in timeline.ends:
        yield
    # While its file is transferred to cracow, the next job takes the processors that are idle there: it will be
    # preempted.
    submitted = [first, _submit(client, timeline, "alarm"), _submit(client, timeline, "sweep")]
    yield
    submitted.append(_submit(client, timeline, "fragile"))
    while any(job not in timeline.ends for job in submitted):
        yield


def _submit(client: Client, timeline: JournalTimeline, name: str) -> int:
    text = (resources.files("koala") / "examples" / "demo" / f"{name}.yaml").read_text("utf-8")
    job = client.submit(text, source=f"{name}.yaml").job
    timeline.priorities[job.id] = job.priority
    timeline.read(client)
    if job.state == "waiting":
        # The journal has the decisions; the job's own story explains why nothing could be decided.
        for line in client.explain(job.id).story[1:]:
            timeline.remark(timeline.since_start(line.at), job.id, line.text.partition(";")[0])
    return job.id


def _tell(
    screen: Console, summary: DemoSummary, daemon: DemoDaemon, *, keep: bool, as_json: bool, story_told: bool
) -> None:
    """Print the summary, and how to go on."""
    link = _dashboard_link(daemon) if keep else None
    if as_json:
        where = {"server": daemon.server, "pid": daemon.pid, "directory": str(daemon.directory), "dashboard": link}
        print_json({**summary.document(), "kept": where if keep else None})
        return
    if story_told:
        screen.print()
    print_summary(screen, summary, with_story=not story_told)
    option = shlex.quote(daemon.server)
    if not keep:
        lines = ["next: koala demo --keep    the daemon stays, and its dashboard in your browser"]
    else:
        lines = [
            "the daemon runs on:",
            f"  dashboard  {link}  (this link works once)",
            f"  look       koala top -s {option}",
            f"  submit     koala submit hello --wait -s {option}",
            f"  end it     koala demo --end {shlex.quote(str(daemon.directory))}",
        ]
    click.echo("\n" + "\n".join(lines))


def _dashboard_link(daemon: DemoDaemon) -> str | None:
    from koala.client import ClientError

    try:
        with daemon.client() as client:
            return client.login().url
    except ClientError as error:
        raise FailedError(f"no link to the dashboard could be made: {error.for_user()}") from None
