"""Training with real torch over three sites: a component is killed, and the training goes on from its checkpoint.

torch is large: where it is not installed (extra ``torch``) the test is skipped, or fails where the environment
variable CI is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from pathlib import Path

from koala.examples import training
from koala.model.checkpoint import Checkpoint
from koala.model.request import Application, Component, JobType, Request
from tests.support.engine_world import local_grid, open_engine, root
from tests.support.live_sites import processes_of
from tests.support.real_programs import real_extra

__all__ = ["root"]

PROGRAM = Path(training.__file__).parent / "train.py"
# Six processes import torch, which takes three seconds of a processor in each.
STARTED_WITHIN_S = 400.0
# The first run ends only by being killed. A later one goes on until it has learnt enough.
TRAINING = f"""
case $KOALA_RUN in
    1) target=0 ;;
    *) target=0.5 ;;
esac
exec {shlex.quote(sys.executable)} -m torch.distributed.run {shlex.quote(str(PROGRAM))} \\
    --steps 1000000 --look-every 20 --save-every 20 --target-loss "$target"
"""


def test_training_over_three_sites_goes_on_after_a_component_was_killed(root: Path) -> None:
    real_extra("torch")
    environment = (
        ("GLOO_SOCKET_IFNAME", "lo"),
        ("OMP_NUM_THREADS", "1"),
        ("PYTHONPATH", os.environ.get("PYTHONPATH", "")),
    )
    application = Application(script=TRAINING, environment=environment)
    request = Request(
        components=(Component(processors=1, application=application),) * 3,
        job_type=JobType.TORCHRUN,
        checkpoint=Checkpoint(directory="ckpt"),
        restarts_max=10,
    )

    def saved(part: int) -> list[Path]:
        return [*root.glob(f"sites/*/components/1.{part + 1}/workspace/ckpt/state-*.pt")]

    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1, 1), restart_rest_s=0.0)) as world:
            job = await world.submit(request)
            await world.until(lambda: all(saved(part) for part in range(3)), STARTED_WITHIN_S)
            for pid in processes_of(saved(1)[0].parents[3]):
                with contextlib.suppress(ProcessLookupError):  # it ended with another of them
                    os.kill(pid, signal.SIGKILL)
            (row,) = await world.ended(job, within_s=STARTED_WITHIN_S)
            assert row.state == "done", row.reason
            assert row.runs >= 2
            told = json.loads(await world.output(job))
            assert told["clusters"] == [1, 1, 1]
            assert told["steps"] >= told["restored_at"] >= 20
            assert told["loss"] < 0.5

    asyncio.run(scenario())
