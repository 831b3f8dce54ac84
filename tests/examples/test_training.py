"""Training with real torch over three sites: a component is killed, and the training continues from its checkpoint.

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
import subprocess
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
# Three processes at a time import torch, which takes three seconds of a processor in each.
STARTED_WITHIN_S = 400.0
# The first run ends only by being killed. A later one goes on until it has learnt enough. The process that trains
# is a fork of the launcher, which has loaded torch. What is loaded stays until the end: to look for garbage in it,
# and at the end again, would take as long as half of loading it.
TRAINING = f"""
case $KOALA_RUN in
    1) target=0 ;;
    *) target=0.5 ;;
esac
exec {shlex.quote(sys.executable)} -c '
import gc
gc.disable()
from torch.distributed.run import main
gc.freeze()
main()
' --run-path --start-method fork {shlex.quote(str(PROGRAM))} \\
    --steps 1000000 --look-every 20 --save-every 20 --target-loss "$target"
"""

# Two processes train to a step. Then the second is without its last state, as if it had been ended before it saved
# that, and both train on. They are forks of one, so that torch is loaded once.
TWICE = """
import gc
import os
import sys
from functools import partial
from pathlib import Path
gc.disable()
from koala.examples.training import train
gc.freeze()

folder, rank = Path(sys.argv[1]), 0 if os.fork() else 1
os.environ["KOALA_PROCESSORS_ALL"] = "1,1"
joined = partial(train.dist.init_process_group, rank=rank, world_size=2)
for steps in (40, 41):
    train.dist.init_process_group = partial(joined, init_method=f"file://{folder}/met-{steps}")
    sys.argv[1:] = ["--steps", str(steps), "--save-every", "20", "--checkpoint", f"{folder}/{rank}"]
    train.main()
    if (rank, steps) == (1, 40):
        (folder / "1/state-40.pt").unlink()
sys.stdout.flush()
os._exit(0 if rank else os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_all_go_on_from_the_last_state_that_all_have(tmp_path: Path) -> None:
    real_extra("torch")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TWICE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=STARTED_WITHIN_S)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["restored_at"], each["steps"]) for each in told] == [(0, 40), (20, 41)]
    assert told[0]["loss"] == told[1]["loss"]  # that of step 40, which was trained twice
    assert [sorted(path.name for path in (tmp_path / rank).iterdir()) for rank in "01"] == [
        ["state-20.pt", "state-40.pt"]
    ] * 2


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
