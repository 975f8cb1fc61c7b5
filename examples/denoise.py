"""Teach a network to take noise out of digits, then let it make digits out of noise alone.

The network sees a digit under noise of some level and which digit it is, and says what the noise
was. Starting from nothing but noise, taking a little of it away at a time leaves a digit that
nobody wrote. The pictures go into one PNG: ten of each digit.

    python examples/denoise.py                    two thousand steps, a minute or two
    python examples/denoise.py --compile          the same numbers from a captured step

Ho et al., "Denoising diffusion probabilistic models" (2020), with the deterministic way back of
Song et al., "Denoising diffusion implicit models" (2020).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

import ruda
import ruda.nn.functional as F
from ruda import data, nn, optim

SIDE, CLASSES = 8, 10


class Denoiser(nn.Module):
    """From noisy digits `(batch, 64)`, their levels and classes `(batch,)` to the noise in them."""

    def __init__(self, levels: int, width: int, depth: int) -> None:
        super().__init__()
        self.levels = levels
        self.width = width
        # What is left of the picture at each level, from nearly all to nearly nothing.
        angle = [math.pi / 2 * (i + 0.5) / levels for i in range(levels)]
        self.register_buffer("kept", ruda.asarray([math.cos(a) for a in angle]))
        self.register_buffer("noise", ruda.asarray([math.sin(a) for a in angle]))
        self.enter = nn.Linear(SIDE * SIDE, width)
        self.level = nn.Linear(width, width)
        self.digit = nn.Embedding(CLASSES, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.SiLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(depth)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, SIDE * SIDE))

    def forward(self, x: ruda.Tensor, level: ruda.Tensor, digit: ruda.Tensor) -> ruda.Tensor:
        told = self.level(F.sinusoidal_positions(level, self.width, 100.0)) + self.digit(digit)
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x + told)
        return self.leave(x)

    def loss(self, x: ruda.Tensor, digit: ruda.Tensor) -> ruda.Tensor:
        """How far the answer is from the noise that was added; saying nothing costs 1."""
        level = ruda.random.randint(0, self.levels, (x.shape[0],), device=x.device)
        noise = ruda.random.normal(x.shape, device=x.device)
        kept, share = (ruda.take(part, level, axis=0)[:, None] for part in (self.kept, self.noise))
        return F.mse_loss(self(kept * x + share * noise, level, digit), noise)

    @ruda.no_grad()
    def make(self, digit: ruda.Tensor) -> ruda.Tensor:
        """New pictures `(batch, 64)` of the given digits."""
        x = ruda.random.normal((digit.shape[0], SIDE * SIDE), device=digit.device)
        for i in reversed(range(self.levels)):
            noise = self(x, ruda.full(digit.shape, i, dtype="int64"), digit)
            picture = ruda.clip((x - self.noise[i] * noise) / self.kept[i], -1.0, 1.0)
            if i == 0:
                return picture
            # The noise that explains the clipped picture, at the next lower level.
            noise = (x - self.kept[i] * picture) / self.noise[i]
            x = self.kept[i - 1] * picture + self.noise[i - 1] * noise
        return x


@dataclass
class Result:
    """What a run has learned and made."""

    model: Denoiser
    losses: list[float]
    pictures: np.ndarray
    path: Path


def train(options: argparse.Namespace) -> tuple[Denoiser, list[float]]:
    images, labels = data.known.digits().arrays
    scaled = images.reshape(len(images), -1) / np.float32(8) - np.float32(1)
    sampler = data.DataLoader(
        data.ArrayDataset(scaled, labels), options.batch, shuffle=True, drop_last=True
    )
    model = Denoiser(options.levels, options.width, options.depth)
    optimizer = optim.AdamW(model.parameters(), lr=options.rate)
    rate = optim.Schedule(optimizer, optim.cosine, total=options.steps, warmup=options.steps // 10)

    def step(x: ruda.Tensor, digit: ruda.Tensor) -> ruda.Tensor:
        loss = model.loss(x, digit)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        return loss

    run = ruda.compile(step) if options.compile else step
    # Loaders make batches on the CPU, whatever the model is on.
    device = ruda.default_device()
    losses: list[float] = []
    with tqdm(total=options.steps, unit="step", dynamic_ncols=True) as bar:
        while len(losses) < options.steps:
            for x, digit in sampler:
                losses.append(run(x.to(device), digit.to(device)).item())
                bar.update()
                bar.set_postfix_str(f"loss {np.mean(losses[-100:]):.3f}")
                if len(losses) == options.steps:
                    break
    return model, losses


def tiled(pictures: np.ndarray, columns: int, zoom: int = 4) -> np.ndarray:
    """Pictures `(n, 8, 8)` of numbers from -1 to 1 side by side, as bytes with a margin."""
    framed = np.pad(pictures, ((0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    side = framed.shape[-1]
    rows = framed.reshape(-1, columns, side, side).swapaxes(1, 2).reshape(-1, columns * side)
    large = rows.repeat(zoom, axis=0).repeat(zoom, axis=1)
    return np.uint8(255) - ((large + 1) * 127.5).round().astype(np.uint8)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128, help="digits in a batch")
    parser.add_argument("--levels", type=int, default=40, help="levels of noise")
    parser.add_argument("--width", type=int, default=192, help="features of the network")
    parser.add_argument("--depth", type=int, default=3, help="blocks of the network")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=10, help="pictures of each digit")
    parser.add_argument("--compile", action="store_true", help="capture the step with ruda.compile")
    parser.add_argument("--out", type=Path, default=Path("runs/denoise"), help="where results go")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Any:
    options = arguments(given)
    ruda.random.seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    model, losses = train(options)
    digits = ruda.asarray(np.tile(np.arange(CLASSES), options.rows))
    pictures = model.eval().make(digits).numpy().reshape(-1, SIDE, SIDE)
    path = options.out / "digits.png"
    Image.fromarray(tiled(pictures, CLASSES)).save(path)
    print(f"loss {losses[0]:.3f} at first, {np.mean(losses[-100:]):.3f} at last")
    print(f"{len(pictures)} new digits: {path}")
    return Result(model, losses, pictures, path)


if __name__ == "__main__":
    main()
