"""Training with real torch over three sites: a component is killed, and the training goes on from its checkpoint.

torch is large, and brings more than this needs: where it is not installed (extra ``torch``) the test is skipped.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from koala.examples import training
from koala.model.checkpoint import Checkpoint
from koala.model.request import Application, Component, JobType, Request
from tests.support.engine_world import local_grid, open_engine, root
from tests.support.live_sites import processes_of

__all__ = ["root"]

PROGRAM = Path(training.__file__).parent / "train.py"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is missing; install the extra torch")
@pytest.mark.timeout(600)
def test_training_over_three_sites_goes_on_after_a_component_was_killed(root: Path) -> None:
    words = ("-m", "torch.distributed.run", str(PROGRAM), "--steps", "400", "--save-every", "20")
    environment = (("GLOO_SOCKET_IFNAME", "lo"), ("PYTHONPATH", os.environ.get("PYTHONPATH", "")))
    application = Application(executable=sys.executable, arguments=words, environment=environment)
    request = Request(
        components=(Component(processors=1, application=application),) * 3,
        job_type=JobType.TORCHRUN,
        checkpoint=Checkpoint(directory="ckpt"),
        restarts_max=10,
    )

    def saved(part: int) -> list[Path]:
        return [*root.glob(f"sites/*/components/1.{part + 1}/workspace/ckpt/state.pt")]

    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1, 1), restart_rest_s=0.0)) as world:
            job = await world.submit(request)
            await world.until(lambda: all(saved(part) for part in range(3)))
            for pid in processes_of(saved(1)[0].parents[3]):
                os.kill(pid, signal.SIGKILL)
            (row,) = await world.ended(job)
            assert row.state == "done", row.reason
            assert row.runs >= 2
            told = json.loads(await world.output(job))
            assert (told["steps"], told["clusters"]) == (400, [1, 1, 1])
            assert told["restored_at"] >= 20
            assert told["loss"] < 0.5

    asyncio.run(scenario())
