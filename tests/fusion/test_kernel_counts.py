"""What typical steps become on a GPU: how many nodes their graphs have, and which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.fusion.report import uses
from tests.fusion.dry import dry, graph_of, names

Plain = Callable[..., Any]


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with dry() as client:
        yield client


def on(*shape: int, dtype: str = "float32") -> Any:
    return ruda.asarray(np.ones(shape), dtype=dtype, device="cuda")


def nodes_of(step: Any, *args: Any) -> list[str]:
    """The nodes of the graph; arguments come to their places outside of it."""
    return names(graph_of(ruda.compile(step), *args))


def softmax(x: Any) -> Any:
    e = ruda.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rms(x: Any) -> Any:
    return x / ruda.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def standardised(x: Any) -> Any:
    far = x - x.mean(axis=-1, keepdims=True)
    return far / ruda.sqrt((far * far).mean(axis=-1, keepdims=True) + 1e-5)


def losses(x: Any) -> Any:
    gap = x - 0.5
    return (gap * gap).mean(), ruda.abs(gap).mean(), gap.max()


def swish(x: Any) -> Any:
    return x * ruda.sigmoid(x), x + 1


def places(x: Any, count: int) -> Any:
    """Rows of ``x``."""
    return ruda.asarray(np.arange(count) % x.shape[0], device="cuda")


X, WIDE, LONG, HALF = (256, 64), (512, 4096), (300, 3000), (256, 64)
# Of each step: what it does, to which shape and dtype, and the beginnings of its nodes' names.
GRAPHS: dict[str, tuple[Plain, tuple[int, ...], str, tuple[str, ...]]] = {
    "a chain": (lambda x: ruda.tanh(x * 2 + 1) - x, X, "float32", ("fused_multiply",)),
    "a chain of halves": (lambda x: ruda.exp(x) * x + 1, X, "bfloat16", ("fused_exp",)),
    "two results": (swish, X, "float32", ("fused_sigmoid",)),
    "a cast in a chain": (lambda x: (x.astype("float32") * 2).astype("float16"), X, "float16",
        ("fused_astype",)),
    "nothing at all": (lambda x: (x * 1 - 0.0).reshape((64, 256)).reshape(X) + 1, X, "float32",
        ("add",)),
    "a softmax by hand": (softmax, X, "float32", ("folded_max",)),
    "a long softmax by hand": (softmax, WIDE, "float32", ("folded_max",)),
    "a root mean square by hand": (rms, X, "float32", ("folded_multiply_mean",)),
    "a norm by hand": (standardised, X, "float32", ("folded_mean",)),
    "a norm of halves with casts": (
        lambda x: standardised(x.astype("float32")).astype("bfloat16"), X, "bfloat16",
        ("folded_astype",)),
    "a log-sum-exp by hand": (lambda x: ruda.log(ruda.exp(x).sum(axis=-1)), X, "float32",
        ("folded_exp",)),
    "several losses": (losses, (100, 100), "float32", ("folded_subtract",)),
    "two sums of one row": (lambda x: (x.sum(axis=-1), (x * x).sum(axis=-1)), X, "float32",
        ("folded_sum",)),
    "facts of each row": (
        lambda x: (ruda.abs(x).sum(axis=-1), (x * x).mean(axis=-1), ruda.exp(x).max(axis=-1)), X,
        "bfloat16", ("folded_abs_sum_multiply_mean_exp_max",)),
    "facts of each column": (
        lambda x: (ruda.abs(x).sum(axis=0), (x * x).mean(axis=0), ruda.exp(x).max(axis=0)), LONG,
        "float32", ("down_abs_sum_multiply_mean_exp_max",)),
    "a sum down columns": (lambda x: x.sum(axis=0), X, "float32", ("down_sum",)),
    "a chain summed down columns": (lambda x: (ruda.exp(x) * 2).sum(axis=0), LONG, "float32",
        ("down_exp",)),
    "a chain that is kept and summed": (lambda x: ((y := x * 3), y.mean(axis=0)), LONG, "bfloat16",
        ("down_multiply",)),
    "a chain summed over the middle": (lambda x: (ruda.exp(x) * 2).sum(axis=1), (30, 100, 96),
        "float32", ("down_exp",)),
    "centred columns": (lambda x: x - x.mean(axis=0), X, "float32", ("down_mean", "subtract")),
    "a softmax with a scale": (lambda x: F.softmax(x * 0.125, axis=-1), X, "float32",
        ("softmax",)),
    "a softmax with a mask and a cast": (
        lambda x: F.softmax(ruda.where(x > 0, x, -1e9), axis=-1).astype("bfloat16"), X, "float32",
        ("softmax",)),
    "a log-softmax and its sign": (lambda x: -F.log_softmax(x + 1, axis=-1), X, "float32",
        ("log_softmax",)),
    "a norm and an activation": (lambda x: F.gelu(F.layer_norm(x), approximate="tanh"), X,
        "float32", ("layer_norm",)),
    "a shortcut, a norm and a cast": (
        lambda x: ((y := x * 0.5 + x), F.rms_norm(y).astype("float16")), X, "float32",
        ("rms_norm",)),
    "a norm of halves": (lambda x: F.layer_norm(x + x) * 2, HALF, "float16", ("layer_norm",)),
    "parts put together, and a chain": (
        lambda x: F.relu(ruda.concat([x, x * 2], axis=1)) * 3, X, "float32",
        ("multiply", "fused_concat_relu_multiply")),
    "a difference from what is rolled": (lambda x: ruda.roll(x, 3, axis=0) - x, X, "bfloat16",
        ("fused_concat_subtract",)),
    "a padded chain": (lambda x: ruda.pad(x, ((1, 1), (8, 8))) * 0.5 + 1, X, "float32",
        ("fused_pad_constant_multiply_add",)),
    "a slice and a chain": (lambda x: ruda.exp(x[::-1, 8:40]) * 2 + 1, X, "float32",
        ("fused_exp_multiply_add",)),
    "a slice and a norm": (lambda x: F.layer_norm(x[:, 8:40] * 2), X, "bfloat16", ("layer_norm",)),
    "a slice and its sums": (lambda x: (x[8:200] * 2).sum(axis=-1), X, "float32",
        ("folded_multiply_sum",)),
    "rows that are chosen, and kept": (
        lambda x: ((y := x[places(x, 40)]), y * 2), X, "float32", ("fused_index_multiply",)),
    "what is chosen of what the step makes": (
        lambda x: (y := ruda.exp(x))[places(x, 256)] + y, X, "float32",
        ("exp", "fused_index_add")),
    "a table, places and a norm": (
        lambda x: F.layer_norm(F.embedding(places(x, 40), x) * 2), X, "float32", ("layer_norm",)),
    "a softmax of chosen rows": (
        lambda x: F.softmax(x[places(x, 40)] * 2, axis=-1), X, "float32", ("softmax",)),
    "sums of chosen rows": (lambda x: (x[places(x, 40)] * 2).sum(axis=-1), X, "bfloat16",
        ("folded_index_multiply_sum",)),
    "a softmax by hand of chosen rows": (lambda x: softmax(x[places(x, 40)]), X, "float32",
        ("folded_index_max",)),
    "long chosen rows of no whole packs": (
        lambda x: (x[places(x, 200)] * 2).sum(axis=-1), (256, 16391), "float32",
        ("gather", "folded_multiply_sum")),
    "rows put together, and a norm": (
        lambda x: F.layer_norm(ruda.concat([x, x * 2], axis=0)), X, "float32",
        ("multiply", "concat", "layer_norm")),
    "dropout in front of a norm": (
        lambda x: F.layer_norm(F.dropout(x * 2, 0.1) + x), X, "float32",
        ("fused_multiply_dropout", "layer_norm")),
    "dropout in a chain": (lambda x: F.dropout(ruda.exp(x), 0.1) + x, X, "float32",
        ("fused_exp_dropout_add",)),
    "noise in a chain": (
        lambda x: ruda.exp(x) * ruda.random.uniform(X, device="cuda") + x, X, "float32",
        ("fused_uniform_exp_multiply_add",)),
    "noise alone": (lambda x: ruda.random.uniform(X, device="cuda"), X, "float32",
        ("random_uniform",)),
    "what is written twice": (lambda x: (ruda.exp(x) + 1, ruda.exp(x) * 2), X, "float32",
        ("fused_exp",)),
    "constants": (lambda x: x * (ruda.arange(64, device="cuda").astype("float32") + 1), X,
        "float32", ("multiply",)),
}  # fmt: skip


# Bytes beside those of the argument and of the results, each once: what is written and read on the
# way, what is read by two kernels or at two places, indices and constants.
MORE = {
    "centred columns": 256 * 64 * 4 + 2 * 64 * 4,
    "parts put together, and a chain": 3 * 256 * 64 * 4,
    "a difference from what is rolled": 256 * 64 * 2,
    "a slice and a chain": -256 * 32 * 4,
    "a slice and a norm": -256 * 32 * 2,
    "a slice and its sums": -64 * 64 * 4,
    "rows that are chosen, and kept": 40 * 8,
    "what is chosen of what the step makes": 2 * 256 * 64 * 4 + 256 * 8,
    "a table, places and a norm": 40 * 8,
    "a softmax of chosen rows": 40 * 8,
    "sums of chosen rows": 40 * 8,
    "a softmax by hand of chosen rows": 40 * 8,
    "long chosen rows of no whole packs": 2 * 200 * 16391 * 4 + 200 * 8,
    "rows put together, and a norm": 7 * 256 * 64 * 4 + 2 * 512 * 4,
    "dropout in front of a norm": 3 * 256 * 64 * 4,
    "noise alone": -256 * 64 * 4,
    "constants": 64 * 4,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_has_these_nodes_and_moves_these_bytes(name: str) -> None:
    plain, shape, dtype, wanted = GRAPHS[name]
    step, x = ruda.compile(plain), on(*shape, dtype=dtype)
    found = names(graph_of(step, x))
    assert len(found) == len(wanted), found
    assert all(map(str.startswith, found, wanted)), found
    (program,) = step._all()
    out = step(x)
    results = out if isinstance(out, tuple) else (out,)
    ends = x.nbytes + sum(each.nbytes for each in results)
    assert sum(use.nbytes for use in uses(program)) == ends + MORE.get(name, 0)


def training(model: Any, opt: Any, loss_of: Plain) -> Plain:
    def step(*args: Any) -> Any:
        loss = loss_of(model, *args)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step


def perceptron() -> tuple[Any, Any]:
    layers = nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 16)
    model = nn.Sequential(*layers).to("cuda")
    return model, optim.AdamW(model.parameters(), lr=1e-3)


def test_a_perceptron_with_its_optimizer() -> None:
    step = training(*perceptron(), lambda m, x, y: F.cross_entropy(m(x), y))
    found = nodes_of(step, on(128, 96), ruda.asarray(np.arange(128) % 16, device="cuda"))
    assert sum("product" in name for name in found) == 8
    assert sum("relu" in name for name in found) == 4
    assert sum("adamw" in name for name in found) == 1
    assert len(found) <= 18, found


@pytest.mark.parametrize(("classes", "kind"), [(96, "held32x1"), (128256, "cluster8")])
def test_a_loss_and_its_gradient_are_one_kernel(classes: int, kind: str) -> None:
    def step(x: Any, y: Any) -> Any:
        return ruda.value_and_grad(lambda x: F.cross_entropy(x, y))(x)

    def squared(x: Any, y: Any) -> Any:
        return ruda.value_and_grad(lambda x: F.cross_entropy(x, y) ** 2)(x)

    x, y = on(64, classes), ruda.asarray(np.arange(64), device="cuda")
    found = nodes_of(step, x, y)
    wanted = "over_counted", "cross_entropy_joint", "mean_where_counted"
    assert len(found) == 3 and all(map(str.startswith, found, wanted)), found
    assert kind in found[1], found
    # The factor of this gradient is known from the losses alone.
    assert any(name.startswith("cross_entropy_backward") for name in nodes_of(squared, x, y))


def test_parameters_that_were_moved_are_updated_in_place() -> None:
    step = training(*perceptron(), lambda m, x: (m(x) ** 2).sum())
    found = nodes_of(step, on(16, 96))
    assert not any(name.startswith("copy_") for name in found), found


class Block(nn.Module):
    """Half of a transformer's layer: a norm, two maps, a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


def blocks(count: int) -> tuple[Any, Any]:
    model = nn.Sequential(*(Block() for _ in range(count))).to("cuda")
    return model, optim.AdamW(model.parameters(), lr=1e-3)


def test_each_block_of_a_transformer_adds_few_nodes() -> None:
    counts = []
    for layers in (2, 3):
        step = training(*blocks(layers), lambda m, x: (m(x) ** 2).mean())
        counts.append(len(nodes_of(step, on(8, 32, 64))))
    # Norm, two products, activation; four products, two sums, the norm's gradient and its fold.
    assert counts[1] - counts[0] <= 12


def test_autocast_casts_all_weights_at_once() -> None:
    def loss(model: Any, x: Any) -> Any:
        with ruda.autocast("bfloat16"):
            return (model(x) ** 2).mean()

    found = nodes_of(training(*blocks(3), loss), on(8, 32, 64))
    casts = [name for name in found if name.startswith("astype")]
    assert len(casts) <= 2 and casts[0].endswith("many"), casts


def test_bytes_of_a_chain_are_those_of_its_ends(device: Any) -> None:
    x = on(1 << 20)
    before = device.driver.allocated
    graph_of(ruda.compile(lambda x: ruda.exp(x * 2) - ruda.exp(x * 2) * x), x)
    # The slot of the argument, the result of the first run and that of the graph, its copy.
    assert device.driver.allocated - before <= 5 * x.nbytes


def test_bytes_of_a_gather_are_those_of_its_ends(device: Any) -> None:
    x, rows = on(1 << 10, 1 << 10), ruda.asarray(np.arange(1 << 10), device="cuda")
    before = device.driver.allocated
    graph_of(ruda.compile(lambda x, i: ruda.exp(x[i]) * 2 - 1), x, rows)
    # The slots of the arguments, the result of the first run and that of the graph, its copy.
    assert device.driver.allocated - before <= 5 * x.nbytes + 2 * rows.nbytes


def test_large_arguments_are_read_where_they_lie(device: Any) -> None:
    def step(x: Any) -> Any:
        return ruda.tanh(x).sum(axis=-1), ruda.exp(x)

    few, many = on(256, 4096), on(1 << 14, 4096)
    compiled = ruda.compile(step)
    for x in (few, few, many, many):
        device.driver.nodes.clear()
        compiled(x)
    found = names(device.driver.nodes)
    assert not any(name.startswith("cop") for name in found), found
    first, second = compiled._all()
    assert first.captured is not None and second.captured is None
    assert "arguments and results" in second.stepwise
    # Within a budget memory is laid out beforehand, and a state that is written stays one graph.
    bounded = ruda.compile(step, memory=1 << 36)
    bounded(many)
    assert bounded._all()[0].captured is not None
