"""Whatever a job asks for, and in whatever words, it costs no site anything: neither those jobs that are checked when
they are read, nor those that come past the check to the code at a site."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.errors import InvalidError
from koala.model.job_array import ArraySpec
from koala.model.launch import LaunchError
from koala.model.messages import CancelAsked
from koala.model.nodes import TaskNeeds
from koala.model.outputs import JobOutput
from koala.model.request import (
    Application,
    Communication,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    InvalidRequestError,
    JobType,
    Request,
)
from tests.support.engine_world import EngineWorld, local_grid, open_engine, root

__all__ = ["root"]

JOBS = 12
# What is not over by then waits for what never comes, and is cancelled.
PATIENCE_S = 3.0
# All that a path or a name may be, and what it may be made of.
ODD = [
    *("..", ".", "/", "//", "../out", "a/../../out", "-rf", "~", "*", " ", "\t", "\\", "'", '"', "$(id)", "`id`"),
    *("a\nb", "a\rb", "\x7f", "%x", "%x/out", "%j/%x%x/x", "%", "%%", "%q", "\N{LINE SEPARATOR}", "\N{SNOWMAN}"),
    *("x" * 255, "x" * 256, "é" * 127, "é" * 128, "d/" * 1_000 + "x", "d/" * 2_100 + "x", "/dev/full", "/dev/null"),
    *("out", "out/x", ".koala", ".koala.try.1", "script", "record.json", "../record.json", "go", "data", "data/x"),
]
TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
# Small enough that the whole is a job; large enough that no system takes it for an argument.
LONG = "x" * 200_000
VARIABLES = st.dictionaries(
    st.sampled_from(["A", "PATH", "HOME", "LD_PRELOAD", "KOALA_HOME", "1", "A B", ""]),
    TEXTS | st.just(LONG),
    max_size=2,
)
# How each field may be odd; of one job two are at most, so that it is not refused for the one before it can fail for
# the other.
APPLICATION: dict[str, st.SearchStrategy[Any]] = {
    "script": st.sampled_from(
        ["exit 3", "kill -9 $$", "cat data", "\r\n", "", "#!/nonexistent\n", "exec 1>&-", LONG]
    ),
    "executable": st.sampled_from(["true", "nothing", "/nonexistent/x"]) | TEXTS,
    "arguments": st.lists(TEXTS | st.just(LONG), max_size=3).map(tuple),
    "directory": TEXTS,
    "environment": VARIABLES.map(lambda each: tuple(each.items())),
    "stdin": TEXTS,
    "stdout": TEXTS,
    "stderr": TEXTS,
    "partition": TEXTS,
    "requires": TEXTS.map(lambda text: (text,)),
    "image": TEXTS,
}
MODES = st.sampled_from(InputMode)
COMPONENT: dict[str, st.SearchStrategy[Any]] = {
    "processors": st.sampled_from([2, 4, 5, 13]),
    "input_files": st.lists(
        st.builds(InputFile, name=st.sampled_from(["data", "data", "odd/data"]) | TEXTS, mode=MODES, path=TEXTS)
        | st.builds(InputFile, name=TEXTS),
        min_size=1,
        max_size=2,
        unique_by=lambda file: file.name,
    ).map(tuple),
    "outputs": st.builds(JobOutput, path=TEXTS, to=st.sampled_from([None, "a", "file:///nonexistent/x"])).map(
        lambda output: (output,)
    ),
    "site": st.sampled_from("abc"),
    "needs": st.builds(TaskNeeds, memory_bytes=st.sampled_from([1, 2**40]), gpus=st.integers(0, 1)),
}
JOB: dict[str, st.SearchStrategy[Any]] = {
    "name": TEXTS,
    "job_type": st.sampled_from(JobType),
    "walltime_s": st.sampled_from([0.001, 1.0, 1e9]),
    "checkpoint": st.builds(
        Checkpoint,
        directory=TEXTS,
        every_s=st.just(0.5),
        signal=st.none() | st.sampled_from(CheckpointSignal),
        shared=st.booleans(),
    ),
    "array": st.just(ArraySpec(ranges=((0, 2, 1),))),
    "keep_for_s": st.just(0.0),
    "flexible": st.just(Flexibility()),
    "begin_in_s": st.just(0.1),
    "communication": st.builds(Communication, per_processor_mbit_s=st.sampled_from([0.001, 1e9])),
}


@st.composite
def jobs(draw: st.DrawFn) -> Request | None:
    """A job with some odd fields, or None where these make none."""
    odd = draw(st.sets(st.sampled_from([*APPLICATION, *COMPONENT, *JOB]), min_size=1, max_size=2))

    def some(fields: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
        return {name: draw(strategy) for name, strategy in fields.items() if name in odd}

    runs = some(APPLICATION)
    if "executable" not in runs:
        runs = {"script": "exit 0"} | runs
    try:
        component: dict[str, Any] = {"processors": 1, "application": Application(**runs)} | some(COMPONENT)
        job: dict[str, Any] = {"restarts_max": 0, "policy": "FCM" if "flexible" in odd else None} | some(JOB)
        return Request(components=(Component(**component),), **job)
    except (InvalidRequestError, LaunchError):
        return None


async def _live_through(root: Path, requests: list[Request]) -> None:
    grid = local_grid((4, 4, 4), error_threshold=1, cooldown_s=1_000.0, restart_rest_s=0.0, barrier_timeout_s=60.0)
    async with open_engine(root, grid) as world:
        await world.register("data", b"data", "a", "b")
        await world.register("odd/data", b"data", "c")
        submitted = []
        for request in requests:
            with contextlib.suppress(InvalidError):
                submitted.append(await world.submit(request))
        with contextlib.suppress(TimeoutError):
            await world.until(lambda: not any(map(world.engine.live_row, submitted)), PATIENCE_S)
        for job in submitted:
            await world.engine.tell(CancelAsked(at=0.0, job=job))
        await world.ended(*submitted)
        assert _costs(world) == {}


def _costs(world: EngineWorld) -> dict[str, tuple[int, str, str]]:
    sites = world.engine.scheduler.ledger.sites.sites
    return {site.name: (site.errors, site.trust, site.last_error) for site in sites if site.errors or site.last_error}


def test_no_field_of_a_job_costs_a_site_its_trust(root: Path) -> None:
    runs = itertools.count()

    @settings(
        max_examples=max(1, settings().max_examples // 8),
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.lists(jobs(), min_size=JOBS, max_size=JOBS))
    def check(drawn: list[Request | None]) -> None:
        below = root / str(next(runs))
        below.mkdir()
        asyncio.run(_live_through(below, [request for request in drawn if request is not None]))

    check()
