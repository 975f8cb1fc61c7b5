"""Train a recurrent network to write Python, one character after the other.

The text is the source code of the Python standard library, or `--text`. The network reads it in
parallel streams and carries its state from one piece to the next, so it remembers further than
gradients flow (truncated backpropagation through time). Writing needs no context window: the state
is all there is.

    python examples/lstm.py                       three hundred steps, a minute or two
    python examples/lstm.py --compile             the same numbers from a captured step
    python examples/lstm.py --steps 5000          until it closes its brackets

Read from the top: the model, the streams, then `train`.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import ruda
import ruda.nn.functional as F
from ruda import nn, optim

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
State = tuple[ruda.Tensor, ruda.Tensor]


class Writer(nn.Module):
    """From `codes: (batch, time)` and a state to `logits: (batch, time, alphabet)` and the next."""

    def __init__(self, alphabet: int, width: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(alphabet, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, alphabet)
        # A gate that starts open remembers: Jozefowicz et al., 2015.
        for layer in range(layers):
            bias = getattr(self.lstm, f"bias_hh_l{layer}")
            with ruda.no_grad():
                bias[width : 2 * width].assign(1.0)

    def forward(self, codes: ruda.Tensor, state: State) -> tuple[ruda.Tensor, State]:
        out, state = self.lstm(self.token(codes), state)
        return self.head(out), state

    def start(self, batch: int) -> State:
        """The state of a writer who has read nothing."""
        shape = (self.lstm.num_layers, batch, self.lstm.hidden_size)
        return ruda.zeros(shape), ruda.zeros(shape)


class Text:
    """Characters as numbers."""

    def __init__(self, text: str) -> None:
        common = {c for c, _ in Counter(text).most_common(95)}
        self.alphabet = "".join(sorted((common | {"\n"}) - {UNKNOWN})) + UNKNOWN
        self.places = {c: i for i, c in enumerate(self.alphabet)}
        self.codes = self.encode(text)

    def encode(self, text: str) -> np.ndarray:
        unknown = len(self.alphabet) - 1
        return np.array([self.places.get(c, unknown) for c in text], dtype=np.int64)

    def decode(self, codes: list[int]) -> str:
        return "".join(self.alphabet[i] for i in codes)

    def streams(self, batch: int, length: int) -> Any:
        """Pieces `(batch, length)` and the same one character on; row i goes on in row i."""
        long = len(self.codes) // batch
        rows = self.codes[: batch * long].reshape(batch, long)
        while True:
            for start in range(0, long - length - 1, length):
                piece = rows[:, start : start + length + 1]
                yield (
                    start == 0,
                    ruda.asarray(piece[:, :-1].copy()),
                    ruda.asarray(piece[:, 1:].copy()),
                )


def read_text(where: Path | None, most: int = 2_000_000) -> str:
    """One file, or the top modules of the standard library in a fixed order."""
    if where is not None:
        return where.read_text("utf-8", errors="replace")[:most]
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(path.read_text("utf-8", errors="replace") for path in files)[:most]


@dataclass
class Result:
    """What a run has learned."""

    model: Writer
    text: Text
    losses: list[float]
    sample: str


def train(options: argparse.Namespace, text: Text) -> tuple[Writer, list[float]]:
    """Read the streams for the given number of steps."""
    model = Writer(len(text.alphabet), options.width, options.layers)
    optimizer = optim.Adam(model.parameters(), lr=options.rate)
    rate = optim.Schedule(optimizer, optim.cosine, total=options.steps, final=0.1)

    def step(x: ruda.Tensor, y: ruda.Tensor, *state: ruda.Tensor) -> tuple[ruda.Tensor, State]:
        logits, (hidden, cell) = model(x, state)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        # The state goes on, its gradient does not.
        return loss.detach(), (hidden.detach(), cell.detach())

    run = ruda.compile(step) if options.compile else step
    losses: list[float] = []
    streams, state = text.streams(options.batch, options.length), model.start(options.batch)
    bar = tqdm(range(options.steps), unit="step", dynamic_ncols=True)
    for _ in bar:
        first, x, y = next(streams)
        state = model.start(options.batch) if first else state
        loss, state = run(x, y, *state)
        losses.append(loss.item())
        bar.set_postfix_str(f"loss {np.mean(losses[-20:]):.3f}")
    return model, losses


@ruda.no_grad()
def write(model: Writer, text: Text, length: int, warmth: float = 0.6) -> str:
    """What the model writes: each character is drawn from what it holds likely."""
    state, codes = model.start(1), text.encode("\ndef ").tolist()
    pending = codes
    for _ in range(length):
        logits, state = model(ruda.asarray([pending]), state)
        draw = ruda.random.categorical(logits[0, -1] / warmth, logits=True).item()
        codes.append(draw)
        pending = [draw]
    return text.decode(codes)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--text", type=Path, help="a file to learn from")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="streams that are read at once")
    parser.add_argument(
        "--length", type=int, default=64, help="characters that gradients flow over"
    )
    parser.add_argument("--width", type=int, default=128, help="size of the state of a layer")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=4e-3, help="learning rate at the start")
    parser.add_argument("--sample", type=int, default=300, help="characters to write at the end")
    parser.add_argument("--compile", action="store_true", help="capture the step with ruda.compile")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Result:
    options = arguments(given)
    ruda.random.seed(0)
    text = Text(read_text(options.text))
    if len(text.codes) < 2 * options.batch * options.length:
        got = f"Got {len(text.codes)} characters. Expected {2 * options.batch * options.length}."
        raise SystemExit(f"lstm: too little text. {got} Try a smaller --batch or --length.")
    model, losses = train(options, text)
    size = sum(p.size for p in model.parameters())
    print(f"{size:,} parameters, {len(text.codes):,} characters")
    print(f"loss {losses[0]:.3f} nats a character at first, {np.mean(losses[-20:]):.3f} at last")
    sample = write(model, text, options.sample)
    print(sample)
    return Result(model, text, losses, sample)


if __name__ == "__main__":
    main()
