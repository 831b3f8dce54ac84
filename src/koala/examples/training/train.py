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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

FEATURES, HIDDEN, CLASSES, SAMPLES = 64, 256, 10, 4_096
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
STATE = "state.pt"


def main() -> int:
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
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32, help="samples a process takes in one step")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--inner-steps", type=int, default=0, help="0: average in every step, as DDP does")
    parser.add_argument("--target-loss", type=float, default=0.0, help="stop when the loss of all samples is below")
    parser.add_argument("--look-every", type=int, default=20, help="steps between two looks at the loss")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--checkpoint", default=os.environ.get("KOALA_CHECKPOINT"))
    return parser.parse_args()


class Trainer:
    """One process of the training."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=options.rate, momentum=0.9)
        self.size_bytes = 4 * sum(each.numel() for each in self.model.parameters())
        # All processes of a component are a cluster; each has its rank among them, and meets those of its rank.
        sizes = [int(each) for each in os.environ.get("KOALA_PROCESSORS_ALL", str(dist.get_world_size())).split(",")]
        self.clusters = sizes if sum(sizes) == dist.get_world_size() else [dist.get_world_size()]
        first = 0
        for size in self.clusters:
            members = list(range(first, first + size))
            group = dist.new_group(members)
            if dist.get_rank() in members:
                self.cluster, self.cluster_size, self.is_head = group, size, dist.get_rank() == first
            first += size
        heads = [sum(self.clusters[:place]) for place in range(len(self.clusters))]
        self.heads = dist.new_group(heads)
        self.anchor = [each.detach().clone() for each in self.model.parameters()]
        self.momentum = [torch.zeros_like(each) for each in self.anchor]
        generator = torch.Generator().manual_seed(2)
        teacher = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))
        self.samples = torch.randn(SAMPLES, FEATURES, generator=generator)
        with torch.no_grad():
            self.labels = teacher(self.samples).argmax(dim=1)
        self.step = self.asked = self.saves = self.exchanges = 0
        self.loss, self.restored, self.began = float("inf"), 0, time.monotonic()

    def run(self) -> None:
        """All steps that are left, or as many as the target takes."""
        self.began = time.monotonic()
        options = self.options
        while self.step < options.steps:
            self._one_step()
            self.step += 1
            if options.inner_steps and self.step % options.inner_steps == 0:
                self._outer_step()
            if self._wanted():
                self._save()
            if self.step % options.look_every == 0:
                self.loss = self._whole_loss()
                if self.loss < options.target_loss:
                    return

    def _one_step(self) -> None:
        place = (self.step * dist.get_world_size() + dist.get_rank()) * self.options.batch
        chosen = torch.arange(place, place + self.options.batch) % SAMPLES
        loss = nn.functional.cross_entropy(self.model(self.samples[chosen]), self.labels[chosen])
        self.optimiser.zero_grad()
        loss.backward()
        group, size = (self.cluster, self.cluster_size) if self.options.inner_steps else (None, dist.get_world_size())
        for each in self.model.parameters():
            dist.all_reduce(each.grad, group=group)
            each.grad /= size
        self.exchanges += not self.options.inner_steps
        self.optimiser.step()

    def _outer_step(self) -> None:
        """The clusters agree: the mean of their changes is the gradient of an outer step with momentum."""
        with torch.no_grad():
            for each, anchor, momentum in zip(self.model.parameters(), self.anchor, self.momentum, strict=True):
                change = anchor - each
                if self.is_head:
                    dist.all_reduce(change, group=self.heads)
                    change /= len(self.clusters)
                dist.broadcast(change, src=self._first_of_cluster(), group=self.cluster)
                momentum.mul_(OUTER_MOMENTUM).add_(change)
                anchor.sub_(OUTER_RATE * (change + OUTER_MOMENTUM * momentum))
                each.copy_(anchor)
        self.exchanges += 1

    def _first_of_cluster(self) -> int:
        first = 0
        for size in self.clusters:
            if dist.get_rank() < first + size:
                return first
            first += size
        return first

    def _whole_loss(self) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(self.model(self.samples), self.labels))

    # ---------------------------------------------------------------------------------- checkpoints

    def _wanted(self) -> bool:
        """Whether it is time to save, or Koala asks for it: the first process looks for all of them."""
        if self.options.checkpoint is None:
            return False
        asked = 0
        if dist.get_rank() == 0:
            path = Path(os.environ.get("KOALA_CHECKPOINT_ASKED", "/nonexistent"))
            asked = int(path.read_text().split()[0]) if path.exists() else 0
        told = torch.tensor([asked])
        dist.broadcast(told, src=0)
        more, self.asked = int(told) > self.asked, int(told)
        return more or self.step % self.options.save_every == 0

    def _save(self) -> None:
        """The first process of each cluster saves, aside and then by its name."""
        self.saves += 1
        if not self.is_head:
            return
        state: dict[str, Any] = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "anchor": self.anchor,
            "momentum": self.momentum,
        }
        directory = Path(self.options.checkpoint)
        directory.mkdir(parents=True, exist_ok=True)
        torch.save(state, directory / f"{STATE}.part")
        (directory / f"{STATE}.part").replace(directory / STATE)

    def restore(self) -> None:
        """Go on from what was saved, if all processes find the same step; else from the beginning."""
        path = None if self.options.checkpoint is None else Path(self.options.checkpoint) / STATE
        state = torch.load(path) if path is not None and path.exists() else None
        steps = torch.tensor([-1 if state is None else state["step"]])
        least, most = steps.clone(), steps.clone()
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        if state is None or int(least) != int(most):
            return
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.anchor, self.momentum = state["anchor"], state["momentum"]
        self.step = self.restored = state["step"]

    def report(self) -> dict[str, Any]:
        """What became of it. Of an average over n clusters each sends about 2 (n - 1) / n times the model."""
        count = len(self.clusters)
        across = 2 * (count - 1) * self.size_bytes * self.exchanges
        return {
            "steps": self.step,
            "restored_at": self.restored,
            "run": int(os.environ.get("KOALA_RUN", "1")),
            "loss": round(self.loss, 4),
            "seconds": round(time.monotonic() - self.began, 2),
            "clusters": self.clusters,
            "exchanges_across": self.exchanges,
            "bytes_across_at_least": across,
        }


if __name__ == "__main__":
    sys.exit(main())
