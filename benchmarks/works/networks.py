"""Training steps that the CPU rows time, by ruda and by PyTorch from the same weights.

The reference is the loss and the gradient of the first step in float64.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.works.single import WORKS, Work, host, load, normal, ratio, step_of

VOCABULARY = 96


def mlp(library: str, compiled: bool = False) -> Work:
    """P7: three layers of 256 on a batch of 128, cross-entropy of 10 classes, AdamW."""
    x, y = normal(0, (128, 256)), np.arange(128) % 10

    def build(lib: SimpleNamespace) -> Any:
        nn = lib.nn
        layers = (nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        return nn.Sequential(*layers, nn.Linear(256, 10))

    return training(library, build, x, y, compiled=compiled)


def gpt(library: str, compiled: bool = False) -> Work:
    """P8: the model of `examples/gpt.py`, gradients clipped to a norm of 1."""
    codes = np.random.default_rng(0).integers(0, VOCABULARY, (32, 65))
    x, y = codes[:, :-1].copy(), codes[:, 1:].copy()

    def build(lib: SimpleNamespace) -> Any:
        return example().GPT(VOCABULARY, example().Shape())

    def peer(lib: SimpleNamespace) -> Any:
        from benchmarks.works.peer import GPT

        return GPT(VOCABULARY, **vars(example().Shape()))

    make = peer if library == "torch" else build
    return training(library, make, x, y, clip=1.0, compiled=compiled)


def training(
    library: str,
    build: Callable[..., Any],
    x: Any,
    y: Any,
    *,
    clip: float | None = None,
    compiled: bool = False,
) -> Work:
    """A training step, checked by loss and gradient of the first one."""
    lib = load(library)
    model = weighted(build(lib), lib)
    optimizer = lib.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    given, wanted = lib.tensor(x), lib.tensor(y)

    def loss_of(model: Any, x: Any) -> Any:
        out = model(x)
        loss = lib.F.cross_entropy(out.reshape((-1, out.shape[-1])), wanted.reshape((-1,)))
        loss.backward()
        return loss

    def step() -> Any:
        loss = loss_of(model, given)
        if clip is not None:
            lib.clip(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = step_of(lib, step, compiled)

    exact = doubled(weighted(build(lib), lib))
    precise = lib.tensor(x.astype("f8")) if x.dtype.kind == "f" else given
    results = []
    for each, data in ((model, given), (exact, precise)):
        loss = loss_of(each, data)
        results.append([host(loss), *(host(p.grad) for p in each.parameters())])
    optimizer.zero_grad()
    return Work(lambda: float(run().item()), ratio(*results))


def weighted(model: Any, lib: SimpleNamespace) -> Any:
    """`model` with weights that depend on their place in it alone."""
    weights = {}
    for i, (name, p) in enumerate(model.named_parameters()):
        scale = 0.02 if len(p.shape) > 1 else 0.1
        one = float(len(p.shape) == 1 and "norm" in name and name.endswith("weight"))
        weights[name] = lib.tensor((normal(i, tuple(p.shape)) * scale + one).astype("f4"))
    model.load_state_dict(weights)
    return model


def doubled(model: Any) -> Any:
    return model.to("float64") if not hasattr(model, "double") else model.double()


def example() -> ModuleType:
    """The module `examples/gpt.py`."""
    if "gpt" not in sys.modules:
        path = Path(__file__).parents[2] / "examples" / "gpt.py"
        spec = importlib.util.spec_from_file_location("gpt", path)
        assert spec is not None and spec.loader is not None
        sys.modules["gpt"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["gpt"])
    return sys.modules["gpt"]


WORKS |= {
    "mlp": mlp,
    "mlp compiled": lambda library: mlp(library, compiled=True),
    "gpt": gpt,
    "gpt compiled": lambda library: gpt(library, compiled=True),
}
