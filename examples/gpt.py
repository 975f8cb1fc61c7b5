"""Train a small GPT on text that every machine has, and watch it learn to write it.

By default the text is the source code of the Python standard library; `--text` takes any file or
folder. The model reads characters. While it trains it shows loss and speed, measures itself on text
it has not seen, and writes samples; at the end it draws the loss curve. The yardstick is the
character-bigram entropy of the unseen text: what the best possible model that sees only the
previous character would lose.

    python examples/gpt.py                        three minutes on whatever this machine has
    python examples/gpt.py --minutes 10           a longer run
    python examples/gpt.py --text book.txt        other text
    python examples/gpt.py --resume               go on where the last run stopped

Ctrl-C ends a run after the step at hand and saves it. Read from the top: the model, the text, then
`Run`, whose method `step` is all there is to training.
"""

from __future__ import annotations

import argparse
import json
import signal
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from tqdm import tqdm

import ruda
import ruda.nn.functional as F
from ruda import nn, optim

matplotlib.use("agg")

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
# Fewer characters to be judged on would say little about a model.
LEAST = 10_000


@dataclass(frozen=True)
class Shape:
    """The size of the model: 0.8 M parameters as it stands."""

    context: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4


class Attention(nn.Module):
    """Causal self-attention over `x: (batch, time, width)`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        batch, time, width = x.shape
        split = self.qkv(x).reshape((batch, time, 3, self.heads, width // self.heads))
        q, k, v = ruda.unstack(split.permute_dims((2, 0, 3, 1, 4)))
        mixed = F.attention(q, k, v, is_causal=True)
        return self.out(mixed.permute_dims((0, 2, 1, 3)).reshape((batch, time, width)))


class Block(nn.Module):
    """One layer: attention, then a two-layer network, each beside a shortcut."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.norm2 = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """From `tokens: (batch, time)` to `logits: (batch, time, vocabulary)`."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.context = shape.context
        self.token = nn.Embedding(vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # The maps back onto the shortcut start smaller: depth must not blow it up.
                last = name.endswith(("attention.out.weight", "mlp.2.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** (0.5 * last))

    def forward(self, tokens: ruda.Tensor) -> ruda.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Text:
    """Characters as numbers, split into a part to learn from and a part to be judged on."""

    def __init__(self, learn: str, judge: str, alphabet: str | None = None) -> None:
        if alphabet is None:
            common = (c for c, _ in Counter(learn).most_common(100))
            alphabet = "".join(sorted({*common, "\n"} - {UNKNOWN})) + UNKNOWN
        self.alphabet = alphabet
        self.codes = {c: i for i, c in enumerate(alphabet)}
        self.learn, self.judge = self.encode(learn), self.encode(judge)

    def encode(self, text: str) -> np.ndarray:
        unknown = self.codes[UNKNOWN]
        return np.array([self.codes.get(c, unknown) for c in text], dtype=np.int32)

    def decode(self, codes: list[int]) -> str:
        return "".join(self.alphabet[i] for i in codes)

    def bigram_entropy(self) -> float:
        """Nats a character that the best model of pairs loses on the unseen text."""
        pairs = np.zeros((len(self.alphabet), len(self.alphabet)))
        np.add.at(pairs, (self.judge[:-1], self.judge[1:]), 1.0)
        share = pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1.0)
        seen = pairs > 0
        return float(-(pairs[seen] * np.log(share[seen])).sum() / pairs.sum())


def read_text(where: Path | None, limit: int = 8_000_000) -> tuple[str, str]:
    """The text to learn from and the text to be judged on, about one part in ten."""
    source = where or Path(sysconfig.get_path("stdlib"))
    if source.is_file():
        text = source.read_text("utf-8", errors="replace")[:limit]
        cut = len(text) * 9 // 10
        learn, judge = text[:cut], text[cut:]
    else:
        files = files_in(source, "*.py" if where is None else "*")
        parts = [p.read_text("utf-8", errors="replace") for p in files]
        learn = "".join(t for i, t in enumerate(parts) if i % 10 != 5)[:limit]
        judge = "".join(t for i, t in enumerate(parts) if i % 10 == 5)[: limit // 9]
    if min(len(learn), len(judge)) < LEAST:
        got = f"Got {len(learn)} characters to learn from and {len(judge)} to judge on."
        expected = f"Expected {LEAST} at least of both. Try another --text."
        raise SystemExit(f"gpt: too little text in {source}. {got} {expected}")
    return learn, judge


def files_in(folder: Path, pattern: str, most: int = 1500) -> list[Path]:
    """Files in a fixed order; installed packages, tests and hidden files are left out."""
    left_out = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
    found = [
        path
        for path in folder.rglob(pattern)
        if path.is_file()
        and not any(p in left_out or p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    return sorted(found)[:most]


def batch(codes: np.ndarray, starts: np.ndarray, context: int) -> tuple[ruda.Tensor, ruda.Tensor]:
    """Windows of `codes` and the same windows one character on."""
    windows = codes[starts[:, None] + np.arange(context + 1)]
    return ruda.asarray(windows[:, :-1].copy()), ruda.asarray(windows[:, 1:].copy())


class Run:
    """One training run: model, optimizer, schedule and what has happened so far."""

    def __init__(self, text: Text, shape: Shape, size: int, rate: float, total: int) -> None:
        self.text, self.shape, self.size, self.total = text, shape, size, total
        self.done = 0
        self.losses: list[float] = []
        self.judged: list[tuple[int, float]] = []
        self.model = GPT(len(text.alphabet), shape)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.1)
        warmup = min(50, total // 5)
        self.schedule = optim.Schedule(
            self.optimizer, optim.cosine, total=total, warmup=warmup, final=0.05
        )

    def step(self, x: ruda.Tensor, y: ruda.Tensor) -> ruda.Tensor:
        """One update of the model; this is all there is to training."""
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss

    def batches(self) -> Iterator[tuple[ruda.Tensor, ruda.Tensor]]:
        """The batches still to come; each depends on its number alone, so a resumed run goes on."""
        codes, context = self.text.learn, self.shape.context
        for number in range(self.done, self.total):
            draw = np.random.default_rng((1, number))
            yield batch(codes, draw.integers(0, len(codes) - context - 1, self.size), context)

    @ruda.no_grad()
    def judge(self, batches: int = 10) -> float:
        """Loss in nats a character on fixed windows spread over the unseen text."""
        codes, context = self.text.judge, self.shape.context
        starts = np.linspace(0, len(codes) - context - 1, batches * 64).astype(np.int64)
        self.model.eval()
        losses = [
            F.cross_entropy(self.model(x), y).item()
            for x, y in (batch(codes, part, context) for part in np.split(starts, batches))
        ]
        self.model.train()
        return float(np.mean(losses))

    @ruda.no_grad()
    def write(self, length: int = 240, warmth: float = 0.8) -> str:
        """Let the model write: each character is drawn from what it holds likely."""
        self.model.eval()
        codes = self.text.encode("\ndef ").tolist()
        for _ in range(length):
            window = ruda.asarray([codes[-self.shape.context :]])
            logits = self.model(window)[0, -1]
            codes.append(ruda.random.categorical(logits / warmth, logits=True).item())
        self.model.train()
        return self.text.decode(codes)

    def save(self, path: Path) -> None:
        """Write everything that `resume` needs into one file."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": t for name, t in state.items()}
        progress = {"done": self.done, "losses": self.losses, "judged": self.judged}
        ruda.save(path, tensors, {"progress": json.dumps(progress), "settings": self.settings()})

    def settings(self) -> str:
        rate = self.schedule.initial[0].item()
        return json.dumps([self.text.alphabet, vars(self.shape), self.size, rate, self.total])

    @classmethod
    def resume(cls, path: Path, learn: str, judge: str) -> Run:
        """The run that `save` wrote, at the step where it stopped."""
        metadata = ruda.store.load_metadata(path)
        alphabet, shape, size, rate, total = json.loads(metadata["settings"])
        run = cls(Text(learn, judge, alphabet), Shape(**shape), size, rate, total)
        parts: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
        for name, tensor in ruda.load(path).items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = tensor
        run.model.load_state_dict(parts["model"])
        saved = run.optimizer.state_dict()
        for number, state in saved["state"].items():
            state.update({name: parts["optimizer"][f"{number}.{name}"] for name in state})
        run.optimizer.load_state_dict(saved)
        for key, value in json.loads(metadata["progress"]).items():
            setattr(run, key, value)
        run.schedule.load_state_dict({**run.schedule.state_dict(), "step": run.done})
        return run


def steps_and_reports_in(
    minutes: float, reports: int, text: Text, shape: Shape, size: int
) -> tuple[int, int]:
    """How many steps and reports fit into the time, by timing some on a model to throw away.

    Reports get a fifth of the time at most, and one is always written.
    """
    trial = Run(text, shape, size, rate=0.0, total=7)
    ends = []
    for x, y in trial.batches():
        trial.step(x, y)
        ends.append(perf_counter())
    # The first two steps make plans and warm up.
    per_step = (ends[-1] - ends[1]) / (len(ends) - 2)
    trial.judge(1)
    trial.write(24)
    # A tenth of what a report does.
    per_report = 10 * (perf_counter() - ends[-1])
    reports = max(1, min(reports, int(minutes * 60 / 5 / per_report)))
    return max(20, int((minutes * 60 - reports * per_report) / per_step)), reports


class Interrupt:
    """Ctrl-C asks for an end after the step at hand, so that what is saved is whole.

    A second one ends the program at once.
    """

    def __enter__(self) -> Interrupt:
        self.asked = False
        self.before = signal.signal(signal.SIGINT, self.ask)
        return self

    def ask(self, *_: object) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self.before)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)


def train(run: Run, options: argparse.Namespace, reports: int) -> None:
    """Train to the end or to an interrupt, showing progress, and save."""
    step = ruda.compile(run.step) if options.compile else run.step
    tokens = run.size * run.shape.context
    pause = -(-run.total // reports)
    bar = tqdm(run.batches(), total=run.total, initial=run.done, unit="step", dynamic_ncols=True)
    start, before = perf_counter(), run.done
    with Interrupt() as interrupt, bar:
        for x, y in bar:
            run.losses.append(step(x, y).item())
            run.done += 1
            speed = (run.done - before) * tokens / (perf_counter() - start)
            bar.set_postfix_str(f"loss {np.mean(run.losses[-20:]):.3f}, {speed:,.0f} tokens/s")
            if interrupt.asked:
                bar.write(f"interrupted after step {run.done}: --resume goes on from here")
                break
            if run.done % pause == 0 or run.done == run.total:
                loss = run.judge()
                run.judged.append((run.done, loss))
                bar.write(f"step {run.done}: validation loss {loss:.3f}\n{run.write()}\n")
                run.save(options.out / "gpt.safetensors")
    run.save(options.out / "gpt.safetensors")


def draw(run: Run, entropy: float, path: Path) -> None:
    """The loss curve as a picture."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(run.losses, color="0.75", linewidth=0.8, label="training")
    if run.judged:
        axes.plot(*zip(*run.judged, strict=True), marker="o", label="validation")
    axes.axhline(entropy, linestyle="--", color="tab:red", label="bigram entropy")
    axes.set(xlabel="step", ylabel="nats a character")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--text", type=Path, help="a file or folder to learn from")
    parser.add_argument("--minutes", type=float, default=3.0, help="time to train for")
    parser.add_argument("--steps", type=int, help="steps to train for, in place of minutes")
    parser.add_argument("--batch", type=int, default=32, help="windows in a batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--width", type=int, default=Shape.width, help="a multiple of 4")
    parser.add_argument("--context", type=int, default=Shape.context)
    parser.add_argument(
        "--reports", type=int, default=8, help="how often to judge and write, at most"
    )
    parser.add_argument("--device", help='such as "cpu" or "cuda"')
    parser.add_argument("--compile", action="store_true", help="capture the step with ruda.compile")
    parser.add_argument("--resume", action="store_true", help="go on where the last run stopped")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt"), help="where results go")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> Run:
    options = arguments(given)
    if options.device:
        ruda.set_default_device(options.device)
    ruda.random.seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    reports = options.reports
    learn, judge = read_text(options.text)
    if options.resume:
        run = Run.resume(options.out / "gpt.safetensors", learn, judge)
    else:
        text = Text(learn, judge)
        shape = Shape(options.context, options.width, Shape.heads, options.layers)
        total = options.steps
        if total is None:
            known = options.minutes, reports, text, shape, options.batch
            total, reports = steps_and_reports_in(*known)
        run = Run(text, shape, options.batch, options.rate, total)
    entropy = run.text.bigram_entropy()
    size = sum(p.size for p in run.model.parameters())
    print(f"{size:,} parameters, {len(run.text.learn):,} characters, on {ruda.default_device()}")
    train(run, options, reports)
    draw(run, entropy, options.out / "loss.png")
    if run.judged:
        loss = run.judged[-1][1]
        side = "below" if loss < entropy else "above"
        print(f"validation loss {loss:.3f} nats, character-bigram entropy {entropy:.3f} nats:")
        share = 100 * abs(1 - loss / entropy)
        print(f"{share:.1f} % {side} what the best model of character pairs reaches")
    print(f"model and curve: {options.out / 'gpt.safetensors'}, {options.out / 'loss.png'}")
    return run


if __name__ == "__main__":
    main()
