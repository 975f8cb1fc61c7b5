"""A training run that saves after every micro-batch and goes on from what it finds.

As a program, ``run.py FOLDER MICRO_BATCHES KILL_AFTER`` trains and prints each loss bit by bit, and
kills itself at the KILL_AFTER-th call that changes the file system, if that is not negative.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ruda
from ruda import nn, optim
from ruda.data import ArrayDataset, DataLoader
from ruda.nn import functional as F
from ruda.store import Checkpoint

ACCUMULATED = 3


class Run:
    """Two layers with dropout, gradients summed over three batches, shuffled data, AdamW."""

    def __init__(self, folder: Any, **policy: Any) -> None:
        ruda.random.manual_seed(11)
        values = np.random.default_rng(5).standard_normal((22, 4)).astype(np.float32)
        self.model = nn.Sequential(
            nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1)
        )
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = optim.Schedule(self.optimizer, optim.cosine, total=40, warmup=3)
        self.loader = DataLoader(ArrayDataset(values), batch_size=4, shuffle=True, seed=3)
        self.noise = ruda.random.Generator(99)
        self.checkpoint = Checkpoint(folder, **policy)
        self.parts = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
            "generators": {"noise": self.noise},
        }
        self.count = self.micro_batch = 0

    def resume(self) -> bool:
        """Go on from the newest checkpoint, if there is one."""
        found = self.checkpoint.restore(**self.parts)
        if found is not None:
            self.count, self.micro_batch = found.step, found.micro_batch
        return found is not None

    def losses(self, stop: int) -> Iterator[tuple[int, str]]:
        """Train and save after each micro-batch; yield its number and the bits of its loss."""
        while self.count < stop:
            for (x,) in self.loader:
                loss = self.train(x)
                self.count += 1
                self.save(loss)
                yield self.count, loss.hex()
                if self.count == stop:
                    return

    def train(self, x: Any) -> float:
        noisy = x + 0.1 * ruda.random.normal(shape=x.shape, generator=self.noise)
        loss = F.mse_loss(self.model(noisy)[:, 0], x.sum(axis=1))
        (loss / ACCUMULATED).backward()
        self.micro_batch += 1
        if self.micro_batch == ACCUMULATED:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
            self.micro_batch = 0
        return float(loss.item())

    def save(self, loss: float) -> None:
        metrics = {"loss": loss}
        self.checkpoint.save(
            self.count, **self.parts, metrics=metrics, micro_batch=self.micro_batch
        )


def killing(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """The function, but that the process is killed at the call that ``left`` counts down to."""

    def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call


def main(folder: str, stop: str, kill_after: str) -> None:
    left = [int(kill_after)]
    for name in ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir"):
        setattr(os, name, killing(getattr(os, name), left))
    run = Run(folder)
    run.resume()
    for count, loss in run.losses(int(stop)):
        print(count, loss, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
