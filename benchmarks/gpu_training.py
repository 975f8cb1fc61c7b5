"""Training steps on a GPU by ruda and by PyTorch, from the same weights on the same data."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import Line, gpu_gpt2, row, wanted
from benchmarks.gpu import alternate, result
from benchmarks.works.networks import example, weighted
from benchmarks.works.resnet import resnet50
from benchmarks.works.single import load

# GPT-2 124M, and the small one of examples/gpt.py.
GPT2 = gpu_gpt2.SIZE
SMALL = {"vocabulary": 96, "context": 64, "width": 128, "heads": 4, "layers": 4}


def _model(library: str, size: dict[str, int], tied: bool) -> Any:
    lib = load(library)
    if library == "torch":
        from benchmarks.works.peer import GPT

        model: Any = weighted(GPT(**size), lib)
    else:
        shape = {k: v for k, v in size.items() if k != "vocabulary"}
        gpt = example()
        model = weighted(gpt.GPT(size["vocabulary"], gpt.Shape(**shape)), lib)
    if tied:
        model.head.weight = model.token.weight
    return model


def ruda_step(size: dict[str, int], batch: int, half: bool) -> Callable[[], Any]:
    """An eager step of ruda; what it returns is the loss, still on the device."""
    import ruda
    import ruda.nn.functional as F
    from ruda import optim

    model = _model("ruda", size, tied=half).to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    x, y = (ruda.asarray(v, device="cuda") for v in tokens(size, batch))
    flat = y.reshape((-1,))

    def loss_of() -> Any:
        logits = model(x)
        return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), flat)

    def step() -> Any:
        if half:
            with ruda.autocast("bfloat16"):
                loss = loss_of()
        else:
            loss = loss_of()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def torch_step(size: dict[str, int], batch: int, half: bool, how: str) -> Callable[[], Any]:
    """A step of PyTorch: ``how`` is "eager" or a mode of torch.compile."""
    import torch

    model = _model("torch", size, tied=half).to("cuda")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    x, y = (torch.from_numpy(v).cuda() for v in tokens(size, batch))
    y = y.long()
    forward = model if how == "eager" else torch.compile(model, mode=how)

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            logits = forward(x)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def tokens(size: dict[str, int], batch: int) -> tuple[Any, Any]:
    """Token numbers and those that follow them, [batch, context]."""
    high, length = size["vocabulary"], size["context"]
    codes = np.random.default_rng(0).integers(0, high, (batch, length + 1), dtype=np.int32)
    return codes[:, :-1].copy(), codes[:, 1:].copy()


def compare(
    row: str,
    case: str,
    sizes: tuple[dict[str, int], int, bool],
    steps: dict[str, Callable[[], Any]],
    goal: float,
) -> Line:
    """One line; the losses of the first ten steps must agree."""
    size, batch, half = sizes
    losses = {name: [float(step().item()) for _ in range(10)] for name, step in steps.items()}
    apart = max(abs(a - b) / abs(b) for a, b in zip(*losses.values(), strict=True))
    assert apart < (2e-2 if half else 1e-3), losses
    times = alternate(steps, rounds=15, warmup=3)
    rate = round(batch * size["context"] / times["ruda"].median)
    gc.collect()
    facts = {"tokens_per_second": rate, "apart": apart}
    return result(row, f"{case}, B{batch} S{size['context']}", times, goal=goal, **facts)


def eager(row: str, size: dict[str, int], batch: int, half: bool, goal: float) -> Line:
    """Eager steps of both libraries."""
    steps = {
        "ruda": ruda_step(size, batch, half),
        "TE": torch_step(size, batch, half, "eager"),
    }
    return compare(row, "eager", (size, batch, half), steps, goal)


def compiled(
    row: str, size: dict[str, int], batch: int, half: bool, mode: str, goal: float
) -> Line:
    """A compiled step against a forward compiled by torch.compile in `mode`."""
    import ruda

    own = ruda.compile(ruda_step(size, batch, half))
    steps = {"ruda": own, "TC": torch_step(size, batch, half, mode)}
    line = compare(row, "compiled", (size, batch, half), steps, goal)
    return {**line, "strategy": own.explain().splitlines()[2].split("replayed ")[-1]}


@row("J3", "GPT-2 124M training step, autocast bfloat16")
def gpt2() -> Iterator[Line]:
    if wanted("eager"):
        yield eager("J3", GPT2, 16, True, 0.9)
    if wanted("compiled"):
        yield from gpu_gpt2.lines()


@row("J8", "training step of a GPT of 0.8 M parameters, batch 32, context 64")
def small() -> Iterator[Line]:
    yield eager("J8", SMALL, 32, False, 1.0)
    yield compiled("J8", SMALL, 32, False, "reduce-overhead", 5.0)


def ruda_resnet(batch: int) -> Callable[[], Any]:
    """An eager step of ResNet-50 with channels last, autocast bfloat16, SGD with momentum."""
    import ruda
    import ruda.nn.functional as F
    from ruda import nn, optim

    model = resnet50(nn, True)
    load_the_same(model, lambda a: ruda.asarray(a))
    model = model.to("cuda")
    opt = optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    x, y = (ruda.asarray(v, device="cuda") for v in images(batch))

    def step() -> Any:
        with ruda.autocast("bfloat16"):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def torch_resnet(batch: int, how: str = "eager") -> Callable[[], Any]:
    """The same step by PyTorch, in its channels-last memory format, cuDNN free to choose.

    ``how`` is "eager" or a mode of torch.compile.
    """
    import torch

    torch.backends.cudnn.benchmark = True
    model = resnet50(torch.nn, False)
    load_the_same(model, torch.from_numpy)
    model = model.to("cuda", memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, fused=True)
    images_, labels = images(batch)
    x, y = torch.from_numpy(images_).permute(0, 3, 1, 2).cuda(), torch.from_numpy(labels).cuda()
    forward = model if how == "eager" else torch.compile(model, mode=how)

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def load_the_same(model: Any, convert: Callable[[Any], Any]) -> None:
    """Weights that depend on their names and shapes alone; statistics stay as they are."""
    rng = np.random.default_rng(0)
    found = {}
    for name, value in model.state_dict().items():
        shape = tuple(value.shape)
        if len(shape) > 1:
            scale = np.sqrt(2 / np.prod(shape[1:]))
            found[name] = convert((rng.standard_normal(shape) * scale).astype("f4"))
    model.load_state_dict(found, strict=False)


def images(batch: int) -> tuple[Any, Any]:
    """Noise [batch, 224, 224, 3] and a class for each."""
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((batch, 224, 224, 3), dtype=np.float32)
    return noise, rng.integers(0, 1000, batch)


def compare_resnets(
    case: str, batch: int, steps: dict[str, Callable[[], Any]], goal: float, strategy: str
) -> Line:
    """One line; the losses of the first three steps must agree."""
    losses = {name: [float(step().item()) for _ in range(3)] for name, step in steps.items()}
    apart = max(abs(a - b) / abs(b) for a, b in zip(*losses.values(), strict=True))
    assert apart < 5e-2, losses
    times = alternate(steps, rounds=10, warmup=2)
    rate = round(batch / times["ruda"].median)
    gc.collect()
    facts = {"images_per_second": rate, "apart": apart}
    return result("J6", f"{case}, B{batch}", times, goal=goal, strategy=strategy, **facts)


@row("J6", "ResNet-50 training step, batch 256, channels last, autocast bfloat16")
def resnet() -> Iterator[Line]:
    import ruda

    batch = 256
    steps = {"ruda": ruda_resnet(batch), "TE": torch_resnet(batch)}
    yield compare_resnets("eager", batch, steps, 0.9, "eager")
    steps = {"ruda": ruda.compile(ruda_resnet(batch)), "TC": torch_resnet(batch, "default")}
    yield compare_resnets("compiled", batch, steps, 1.0, "one graph")
