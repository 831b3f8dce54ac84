"""Train a small model over several clusters: plain data parallel (DDP), or local SGD with few messages, as in DiLoCo.

With DDP all processes average their gradients in every step. With ``--inner-steps H`` those of a cluster do, and the
clusters average what they have learnt every H steps only: an outer optimiser takes the mean of their changes as its
gradient. The model and all that is needed to go on is saved every so many steps, and when Koala asks for it; it goes
on with as many steps done, also with other processes. It needs the extra ``torch``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

FEATURES, CLASSES, SAMPLES = 64, 10, 4_096
MOMENTUM = 0.9
# Saved states, by their steps. A process may end just after it has saved and before others have: all have the state
# before the last.
STATE = "state-{}.pt"
STATES_KEPT = 2


def main() -> None:
    """Train, and tell the loss, the time, and the bytes that left this cluster."""
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    trainer = Trainer(options)
    trainer.restore()
    trainer.run()
    if dist.get_rank() == 0:
        sys.stdout.write(f"{json.dumps(trainer.report())}\n")
    dist.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32, help="samples a process takes in one step")
    parser.add_argument("--hidden", type=int, default=256, help="width of the model: 75 parameters for each")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--inner-steps", type=int, default=0, help="0: average in every step, as DDP does")
    parser.add_argument("--outer-rate", type=float, default=0.7, help="of the change that clusters agree on")
    parser.add_argument("--outer-momentum", type=float, default=0.5, help="of those changes; 0.9 is for many of them")
    parser.add_argument("--target-loss", type=float, default=0.0, help="stop when the loss of all samples is below")
    parser.add_argument("--look-every", type=int, default=20, help="steps between two looks at the loss")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--checkpoint", default=os.environ.get("KOALA_CHECKPOINT"))
    options = parser.parse_args()
    for name in ("steps", "batch", "hidden", "look_every", "save_every"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; give 1 or more")
    if options.inner_steps < 0:
        parser.error(f"--inner-steps is {options.inner_steps}; give 0 or more")
    return options


class Trainer:
    """One process of the training. Parameters, gradients and all that is exchanged are one vector each, which is one
    message: over a wide area many small ones would take as many round trips."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = nn.Sequential(nn.Linear(FEATURES, options.hidden), nn.Tanh(), nn.Linear(options.hidden, CLASSES))
        self.weights = parameters_to_vector(self.model.parameters()).detach()
        # Plain SGD with momentum, written out: torch.optim takes two seconds to load.
        self.velocity = torch.zeros_like(self.weights)
        self.anchor = self.weights.clone()
        self.momentum = torch.zeros_like(self.weights)
        self._find_clusters()
        generator = torch.Generator().manual_seed(2)
        teacher = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))
        self.samples = torch.randn(SAMPLES, FEATURES, generator=generator)
        with torch.no_grad():
            self.labels = teacher(self.samples).argmax(dim=1)
        self.step = self.asked = self.exchanges = 0
        self.curve: list[tuple[int, float, float]] = []
        self.loss, self.restored, self.began = float("inf"), 0, time.monotonic()

    def _find_clusters(self) -> None:
        """All processes of a component are a cluster. Their first one speaks for them to the other clusters."""
        world, rank = dist.get_world_size(), dist.get_rank()
        sizes = [int(each) for each in os.environ.get("KOALA_PROCESSORS_ALL", str(world)).split(",")]
        self.clusters = sizes if sum(sizes) == world else [world]
        heads = [sum(self.clusters[:place]) for place in range(len(self.clusters))]
        for head, size in zip(heads, self.clusters, strict=True):
            members = list(range(head, head + size))
            group = dist.new_group(members)
            if rank in members:
                self.cluster, self.cluster_size, self.head = group, size, head
        self.heads = dist.new_group(heads)

    @property
    def is_head(self) -> bool:
        """Whether this process speaks for its cluster."""
        return bool(dist.get_rank() == self.head)

    def run(self) -> None:
        """All steps that are left, or as many as the target takes."""
        self.began = time.monotonic()
        options = self.options
        while self.step < options.steps:
            self._one_step()
            self.step += 1
            if options.inner_steps and self.step % options.inner_steps == 0:
                self._outer_step()
            looking = self.step % options.look_every == 0
            reached, asked = self._look() if looking else (False, False)
            if asked or self.step % options.save_every == 0:
                self._save()
            if reached:
                return

    def _one_step(self) -> None:
        place = (self.step * dist.get_world_size() + dist.get_rank()) * self.options.batch
        chosen = torch.arange(place, place + self.options.batch) % SAMPLES
        loss = nn.functional.cross_entropy(self.model(self.samples[chosen]), self.labels[chosen])
        gradient = parameters_to_vector(torch.autograd.grad(loss, list(self.model.parameters())))
        group, size = (self.cluster, self.cluster_size) if self.options.inner_steps else (None, dist.get_world_size())
        dist.all_reduce(gradient, group=group)
        self.exchanges += not self.options.inner_steps
        self.velocity.mul_(MOMENTUM).add_(gradient / size)
        self._set(self.weights - self.options.rate * self.velocity)

    def _outer_step(self) -> None:
        """The clusters agree: the mean of their changes is the gradient of an outer step with momentum."""
        change = self.anchor - self.weights
        if self.is_head:
            dist.all_reduce(change, group=self.heads)
            change /= len(self.clusters)
        dist.broadcast(change, src=self.head, group=self.cluster)
        rate, momentum = self.options.outer_rate, self.options.outer_momentum
        self.momentum.mul_(momentum).add_(change)
        self.anchor.sub_(rate * (change + momentum * self.momentum))
        self._set(self.anchor.clone())
        self.exchanges += 1

    def _set(self, weights: torch.Tensor) -> None:
        self.weights = weights
        vector_to_parameters(weights, self.model.parameters())

    def _look(self) -> tuple[bool, bool]:
        """Whether the target is reached, and whether Koala asks for a checkpoint: the first process looks for all of
        them, as with few exchanges each cluster has a model of its own."""
        told = torch.zeros(2, dtype=torch.float64)
        if dist.get_rank() == 0:
            path = Path(os.environ.get("KOALA_CHECKPOINT_ASKED", "/nonexistent"))
            told[0] = self._whole_loss()
            told[1] = int(path.read_text().split()[0]) if path.exists() else 0
        dist.broadcast(told, src=0)
        self.loss = float(told[0])
        self.curve.append((self.step, round(time.monotonic() - self.began, 2), round(self.loss, 4)))
        more, self.asked = int(told[1]) > self.asked, int(told[1])
        return self.loss < self.options.target_loss, more

    def _whole_loss(self) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(self.model(self.samples), self.labels))

    # ---------------------------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        """The first process of each cluster saves, aside and then by its name. None is more than a state ahead of
        another, as each waits for all to have come so far."""
        if self.options.checkpoint is None or not self.is_head:
            return
        dist.barrier(group=self.heads)
        state: dict[str, Any] = {
            "step": self.step,
            "weights": self.weights,
            "velocity": self.velocity,
            "anchor": self.anchor,
            "momentum": self.momentum,
        }
        directory = Path(self.options.checkpoint)
        directory.mkdir(parents=True, exist_ok=True)
        torch.save(state, directory / "state.part")
        (directory / "state.part").replace(directory / STATE.format(self.step))
        self._forget(self._saved()[STATES_KEPT:])

    def _saved(self) -> list[int]:
        """The steps of the states that are there, the last one first."""
        if self.options.checkpoint is None:
            return []
        paths = Path(self.options.checkpoint).glob(STATE.format("*"))
        return sorted((int(path.stem.partition("-")[2]) for path in paths), reverse=True)

    def _forget(self, steps: Iterable[int]) -> None:
        for step in steps:
            (Path(self.options.checkpoint) / STATE.format(step)).unlink(missing_ok=True)

    def restore(self) -> None:
        """Go on from the last step that all processes find saved; from the beginning where there is none. What was
        saved later is void."""
        saved = self._saved()
        # One more than is kept: who ends between saving and forgetting leaves it.
        mine = torch.tensor([*saved, *[0] * (STATES_KEPT + 1)][: STATES_KEPT + 1])
        found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(found, mine)
        step = max(set.intersection(*(set(each.tolist()) for each in found)), default=0)
        if self.is_head:
            self._forget(each for each in saved if each > step)
        if step == 0:
            return
        state = torch.load(Path(self.options.checkpoint) / STATE.format(step))
        self._set(state["weights"])
        self.velocity, self.anchor, self.momentum = state["velocity"], state["anchor"], state["momentum"]
        self.step = self.restored = state["step"]

    def report(self) -> dict[str, Any]:
        """What became of it. Of an average over n clusters each sends about 2 (n - 1) / n times the model. The curve
        has steps, seconds and the loss of each look."""
        count = len(self.clusters)
        size_bytes = self.weights.element_size() * self.weights.numel()
        return {
            "steps": self.step,
            "restored_at": self.restored,
            "run": int(os.environ.get("KOALA_RUN", "1")),
            "loss": round(self.loss, 4),
            "seconds": round(time.monotonic() - self.began, 2),
            "clusters": self.clusters,
            "exchanges_across": self.exchanges,
            "bytes_across_at_least": 2 * (count - 1) * size_bytes * self.exchanges,
            "curve": self.curve,
        }


if __name__ == "__main__":
    main()  # without sys.exit: torchrun with --run-path would wait for ever for the script to return
