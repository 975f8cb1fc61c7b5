"""Learn to read handwritten digits: the shortest whole training run.

The digits are the 1,797 of scikit-learn, 8 by 8 pixels; one in five is held out to judge by. The
loader shifts each training image by up to a pixel, anew in every epoch, so that the net does not
learn places by heart. The learning rate warms up and falls to zero.

    python examples/digits.py                     thirty epochs, a minute or two on two cores
    python examples/digits.py --compile           the same numbers from a captured step
    python examples/digits.py --workers 2         shifts are made beside the training loop

Read from the top: the images, the net, then `train`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from tqdm import tqdm

import ruda
import ruda.nn.functional as F
from ruda import data, nn, optim


def image(sample: tuple[ruda.Tensor, ruda.Tensor]) -> tuple[np.ndarray, int]:
    """Pixels from 0 to 16 as numbers about zero, `(1, 8, 8)`."""
    pixels, label = sample
    return (pixels.numpy()[None] / np.float32(8) - np.float32(1)), label.item()


def shifted(sample: tuple[ruda.Tensor, ruda.Tensor]) -> tuple[np.ndarray, int]:
    """`image`, moved by up to one pixel each way."""
    pixels, label = image(sample)
    draw = ruda.random.uniform((2,), generator=data.generator(), device="cpu")
    down, right = (int(3 * share) for share in draw.tolist())
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    return padded[:, down : down + 8, right : right + 8].copy(), label


def net(width: int = 32) -> nn.Module:
    """Two convolutions on 8 by 8 pixels, two on 4 by 4, and a linear layer: 0.1 M parameters."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, width),
        *block(width, width),
        nn.MaxPool2d(2),
        *block(width, 2 * width),
        *block(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(2 * width, 10),
    )


@ruda.no_grad()
def judge(model: nn.Module, loader: data.DataLoader) -> tuple[float, list[tuple[int, int]]]:
    """The share of digits that are read right, and what was read for what in the others."""
    model.eval()
    wrong, count = [], 0
    for x, y in loader:
        found = ruda.argmax(model(x.to(ruda.default_device())), axis=1)
        count += len(y)
        pairs = zip(y.tolist(), found.tolist(), strict=True)
        wrong += [pair for pair in pairs if pair[0] != pair[1]]
    model.train()
    return 1 - len(wrong) / count, wrong


@dataclass
class Result:
    """What a run has learned."""

    model: nn.Module
    losses: list[float]
    accuracy: float
    wrong: list[tuple[int, int]]
    seconds: float


def train(options: argparse.Namespace) -> Result:
    """Train on four fifths of the digits, and judge by the rest."""
    learn, held = data.split(data.known.digits(), 0.8, 0.2, seed=1)
    learn = data.Subset(learn, range(min(options.images, len(learn))))
    loader = data.DataLoader(
        data.map(learn, shifted),
        options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
    )
    test = data.DataLoader(data.map(held, image), 256)
    model = net(options.width)
    optimizer = optim.AdamW(model.parameters(), lr=options.rate, weight_decay=1e-2)
    total = options.epochs * len(loader)
    rate = optim.Schedule(optimizer, optim.cosine, total=total, warmup=total // 10)

    def step(x: ruda.Tensor, y: ruda.Tensor) -> ruda.Tensor:
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        return loss

    run = ruda.compile(step) if options.compile else step
    # Loaders make batches on the CPU, whatever the model is on.
    device = ruda.default_device()
    losses, start = [], perf_counter()
    bar = tqdm(range(options.epochs), unit="epoch", dynamic_ncols=True)
    for _ in bar:
        losses.append(float(np.mean([run(x.to(device), y.to(device)).item() for x, y in loader])))
        bar.set_postfix_str(f"loss {losses[-1]:.3f}")
    seconds = perf_counter() - start
    return Result(model, losses, *judge(model, test), seconds)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=1797, help="digits to learn from, at most")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layers")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=0, help="threads that make batches")
    parser.add_argument("--compile", action="store_true", help="capture the step with ruda.compile")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Any:
    options = arguments(given)
    ruda.random.seed(options.seed)
    result = train(options)
    print(f"{result.accuracy:.2%} of held-out digits are read right, in {result.seconds:.0f} s")
    for digit, found in result.wrong:
        print(f"  a {digit} was taken for a {found}")
    return result


if __name__ == "__main__":
    main()
