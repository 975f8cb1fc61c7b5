"""Train a small residual network on pictures of clothes, or on digits where there are none.

The pictures are Fashion-MNIST, 60,000 to learn from and 10,000 to judge by, where Debian's package
dataset-fashion-mnist is installed or `--folder` points to the files; else the digits of
scikit-learn. Training pictures are mirrored and shifted. Every few steps the run is saved, and
`--resume` goes on from there as if it had never stopped.

    python examples/resnet.py                     three epochs on 10,000 of the pictures
    python examples/resnet.py --images 60000      all of them
    python examples/resnet.py --resume            go on where the last run stopped

He et al., "Deep residual learning for image recognition" (2015).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import ruda
import ruda.nn.functional as F
from ruda import data, nn, optim


class Residual(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the picture."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        # A block starts as its shortcut, which deep stacks train from more easily.
        nn.init.zeros_(self.norm2.weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """From pictures `(batch, 1, height, width)` to `logits: (batch, classes)`."""

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            Residual(width, width),
            Residual(width, 2 * width, stride=2),
            Residual(2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        return self.head(ruda.mean(self.blocks(self.stem(x)), axis=(2, 3)))


class Pictures:
    """A data set of bytes and labels as numbers about zero, whole batches at once."""

    def __init__(self, source: data.ArrayDataset, count: int, moved: bool) -> None:
        images, self.labels = (array[:count] for array in source.arrays)
        scale = np.float32(max(int(images.max()), 1))
        self.images = images[:, None] / scale * np.float32(2) - np.float32(1)
        # A mirrored shirt is a shirt, but a mirrored 2 is no digit.
        self.mirrored = images.shape[-1] == 28
        self.moved = moved

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]

    def batch(self, indices: np.ndarray) -> tuple[ruda.Tensor, ruda.Tensor]:
        images = self.images[indices]
        if self.moved:
            # One draw for the batch moves all of it: cheap, and enough over many batches.
            draw = ruda.random.randint(0, 2**20, (3,), generator=data.generator(), device="cpu")
            down, right, mirror = draw.tolist()
            images = np.roll(images, (down % 3 - 1, right % 3 - 1), axis=(2, 3))
            images = images[..., ::-1] if self.mirrored and mirror % 2 else images
        return ruda.asarray(np.ascontiguousarray(images)), ruda.asarray(self.labels[indices])


def pictures(options: argparse.Namespace) -> tuple[Pictures, Pictures]:
    """What to learn from and what to judge by."""
    try:
        learn, held = data.known.fashion_mnist(options.folder)
    except data.MissingDataError as error:
        if options.folder is not None:
            raise SystemExit(f"resnet: {error}") from error
        print("no Fashion-MNIST here, so digits; Debian has it as dataset-fashion-mnist")
        order = np.random.default_rng(0).permutation(1797)
        arrays = data.known.digits().arrays
        learn, held = (data.ArrayDataset(*(a[p] for a in arrays)) for p in np.split(order, [1437]))
    judged = max(options.images // 5, 100)
    return Pictures(learn, options.images, moved=True), Pictures(held, judged, moved=False)


@ruda.no_grad()
def judge(model: nn.Module, loader: data.DataLoader) -> float:
    """The share of pictures that are told right."""
    model.eval()
    right = [ruda.sum(ruda.argmax(model(x), axis=1) == y).item() for x, y in loader]
    model.train()
    return sum(right) / len(loader.dataset)


@dataclass
class Run:
    """A training run: what a checkpoint holds, and what has happened."""

    model: nn.Module
    optimizer: optim.Optimizer
    schedule: optim.Schedule
    loader: data.DataLoader
    done: int = 0
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
        }

    def save(self, checkpoint: ruda.store.Checkpoint) -> None:
        told = {"losses": self.losses, "accuracies": self.accuracies}
        checkpoint.save(self.done, **self.parts(), extra=told)

    def restore(self, checkpoint: ruda.store.Checkpoint) -> None:
        found = checkpoint.restore(**self.parts())
        self.done = found.step
        self.losses, self.accuracies = found.extra["losses"], found.extra["accuracies"]

    def step(self, x: ruda.Tensor, y: ruda.Tensor) -> ruda.Tensor:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss


def train(options: argparse.Namespace) -> Run:
    learn, held = pictures(options)
    loader = data.DataLoader(learn, options.batch, shuffle=True, drop_last=True, num_workers=1)
    test = data.DataLoader(held, 500)
    model = ResNet(options.width)
    optimizer = optim.SGD(
        model.parameters(), lr=options.rate, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    total = options.epochs * len(loader)
    shape = optim.Schedule(optimizer, optim.cosine, total=total, warmup=total // 10)
    run = Run(model, optimizer, shape, loader)
    checkpoint = ruda.store.Checkpoint(options.out / "checkpoints", keep_last=2)
    if options.resume:
        run.restore(checkpoint)
    else:
        checkpoint.discard_after(-1)
    step = ruda.compile(run.step) if options.compile else run.step
    last = min(total, options.steps or total)
    with tqdm(total=last, initial=run.done, unit="step", dynamic_ncols=True) as bar:
        while run.done < last:
            for x, y in loader:
                run.losses.append(step(x, y).item())
                run.done += 1
                bar.update()
                bar.set_postfix_str(f"loss {np.mean(run.losses[-20:]):.3f}")
                if run.done % len(loader) == 0:
                    run.accuracies.append(judge(model, test))
                    bar.write(f"step {run.done}: {run.accuracies[-1]:.2%} of unseen pictures")
                if run.done % options.every == 0 or run.done == last:
                    run.save(checkpoint)
                if run.done == last:
                    break
    return run


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--folder", type=Path, help="where the four files of the pictures are")
    parser.add_argument("--images", type=int, default=10_000, help="pictures to learn from")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop there, before the schedule's end")
    parser.add_argument("--batch", type=int, default=100, help="pictures in a batch")
    parser.add_argument("--width", type=int, default=8, help="channels of the first layers")
    parser.add_argument("--rate", type=float, default=0.1, help="peak learning rate")
    parser.add_argument("--every", type=int, default=100, help="steps from one save to the next")
    parser.add_argument("--compile", action="store_true", help="capture the step with ruda.compile")
    parser.add_argument("--resume", action="store_true", help="go on where the last run stopped")
    parser.add_argument("--out", type=Path, default=Path("runs/resnet"), help="where results go")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Run:
    options = arguments(given)
    ruda.random.seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    run = train(options)
    size = sum(p.size for p in run.model.parameters())
    print(f"{size:,} parameters, {run.done} steps, loss {np.mean(run.losses[-20:]):.3f}")
    return run


if __name__ == "__main__":
    main()
