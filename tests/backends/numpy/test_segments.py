"""Compiled steps as tables of tasks: what they give, what they refuse, and who works on them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.core.errors import IndexRangeError
from tests.backends.numpy.pairs import normal
from tests.training import step_of

crew = pytest.importorskip("ruda.backends.numpy.kernels.steps.crew")
segment = pytest.importorskip("ruda.backends.numpy.kernels.steps.segment")


def segments(step: Any) -> list[Any]:
    """The tables of a compiled function."""
    runs = [s[0] for program in step._all() for s in program.replay.steps]
    return [run for run in runs if isinstance(run, segment.Segment)]


def close(found: Any, expected: Any) -> None:
    """Products are cut otherwise than in eager code, which changes their last bits."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    """Attention and a two-layer network on `x: (batch, time, 64)`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.wide = nn.Sequential(nn.Linear(64, 256), nn.GELU("tanh"), nn.Linear(256, 64))
        self.head = nn.Linear(64, 20, bias=False)
        self.place = nn.Parameter(ruda.asarray(normal(32, 64, seed=3)))

    def forward(self, x: Any) -> Any:
        batch, time, width = x.shape
        x = x + self.place
        split = self.qkv(self.norm(x)).reshape((batch, time, 3, 4, width // 4))
        q, k, v = ruda.unstack(split.permute_dims((2, 0, 3, 1, 4)))
        mixed = F.attention(q, k, v, is_causal=True).permute_dims((0, 2, 1, 3))
        x = x + self.out(mixed.reshape((batch, time, width)))
        return self.head(self.last(x + self.wide(x))).reshape((batch * time, 20))


def layers() -> Any:
    return nn.Sequential(nn.Linear(96, 200), nn.ReLU(), nn.Linear(200, 37))


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "network": (layers, (130, 96), 37),
    "transformer": (Block, (48, 32, 64), 20),
}


def training(name: str, compiled: bool) -> tuple[Any, Any, Any]:
    """A training step, its first argument, and the model; the same numbers each time."""
    make, shape, classes = CASES[name]
    ruda.random.seed(0)
    model = make()
    rows = int(np.prod(shape[:-1]))
    target = ruda.asarray(np.arange(rows) * 7 % classes)
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any) -> Any:
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    x = ruda.asarray(normal(*shape))
    return (ruda.compile(step) if compiled else step), x, model


@pytest.mark.parametrize("name", CASES)
def test_a_training_step_gives_what_eager_code_gives(name: str) -> None:
    eager, x, before = training(name, False)
    compiled, _, after = training(name, True)
    for _ in range(3):
        found, expected = compiled(x).item(), eager(x).item()
        assert found == pytest.approx(expected, rel=1e-6)
    assert segments(compiled)
    for p, q in zip(after.parameters(), before.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_the_bits_do_not_depend_on_who_works(name: str) -> None:
    results = []
    for helpers in (0, 1, 3):
        step, x, model = training(name, True)
        step(x)
        for each in segments(step):
            each.laid.table.helpers = helpers
        losses = [step(x).item() for _ in range(5)]
        results.append((losses, [p.numpy().copy() for p in model.parameters()]))
    for losses, parameters in results[1:]:
        assert losses == results[0][0]
        for p, q in zip(parameters, results[0][1], strict=True):
            np.testing.assert_array_equal(p, q)


def test_a_class_out_of_range_raises_at_its_line_and_changes_nothing() -> None:
    model = layers()
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    step = ruda.compile(step_of(model, opt))

    x, good = ruda.asarray(normal(130, 96)), np.arange(130) % 37
    first = step(x, ruda.asarray(good)).item()
    before = [p.numpy().copy() for p in model.parameters()]
    bad = good.copy()
    bad[77] = 37
    with pytest.raises(IndexRangeError, match="cross_entropy") as caught:
        step(x, ruda.asarray(bad))
    assert "cross_entropy, at" in "".join(caught.value.__notes__)
    for p, q in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), q)
    assert step(x, ruda.asarray(good)).item() < first
    assert segments(step)


def test_results_and_views_of_them_outlive_the_next_call() -> None:
    weight = ruda.asarray(normal(128, 128, seed=1))

    @ruda.compile
    def step(x: Any) -> Any:
        y = F.relu(x @ weight)
        z = y @ weight
        return z, z.reshape((32, 8, 128))[1:], y.T

    a, b = (ruda.asarray(normal(256, 128, seed=s)) for s in (2, 3))
    first = step(a)
    kept = [t.numpy().copy() for t in first]
    step(b)
    for tensor, array in zip(first, kept, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)
    expected = np.maximum(a.numpy() @ weight.numpy(), 0)
    close(kept[2], expected.T)
    np.testing.assert_array_equal(kept[1], kept[0].reshape(32, 8, 128)[1:])
    assert segments(step)
    first[0].assign(ruda.zeros((256, 128)))
    assert not first[1].numpy().any()


ROWS: dict[str, Callable[..., Any]] = {
    "transposed operands": lambda x, w: (x.T @ x) @ w.T,
    "a smaller second operand": lambda x, w: (x @ w).reshape((4, 64, 128)) * (x[:64] @ w),
    "differences and quotients": lambda x, w: (x @ w - x) / (x @ w * (x @ w) + 1.0 * x * x),
    "a copy in another order": lambda x, w: ruda.concat(
        [(x @ w).reshape((8, 32, 4, 32)).permute_dims((0, 2, 1, 3)).reshape((256, 128)), x @ w]
    ),
    "activations": lambda x, w: F.silu(F.gelu(x @ w) @ w) @ w,
    "a mean that is counted": lambda x, w: F.cross_entropy(
        x @ w, ruda.asarray(np.arange(256) % 9 - 1), ignore_index=-1
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_give_what_eager_code_gives(name: str) -> None:
    x, w = ruda.asarray(normal(256, 128)), ruda.asarray(normal(128, 128, seed=1) / 8)
    step = ruda.compile(ROWS[name])
    expected = ROWS[name](x, w).numpy()
    for _ in range(2):
        close(step(x, w).numpy(), expected)
    assert segments(step)


def test_nan_and_infinity_pass() -> None:
    data = normal(256, 128)
    data[0, 0], data[1, 1] = np.nan, np.inf
    x, w = ruda.asarray(data), ruda.asarray(normal(128, 128, seed=1))
    found = ruda.compile(lambda x: F.relu(x @ w) @ w)(x).numpy()
    close(found, (F.relu(x @ w) @ w).numpy())


def test_zeros_keep_the_sign_that_eager_code_gives_them() -> None:
    odd = [0.0, -0.0, 1e-42, -1e-42, 1.0, -1.0, np.inf, -np.inf, np.nan]
    x, w = ruda.asarray(np.resize(np.float32(odd), (128, 128))), ruda.asarray(normal(128, 128))

    def step(x: Any) -> Any:
        y = F.relu(x)
        return y, F.relu(x * y), (y @ w) + x, x + x, x - x, x / x

    compiled = ruda.compile(step)
    for _ in range(2):
        with np.errstate(all="ignore"):
            both = list(zip(compiled(x), step(x), strict=True))
        for found, expected in both:
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
            zero = expected.numpy() == 0
            signs = (np.signbit(t.numpy()[zero]) for t in (found, expected))
            np.testing.assert_array_equal(*signs)
    assert segments(compiled)


def test_steps_of_several_threads_keep_apart() -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        w = ruda.asarray(normal(128, 128, seed=seed) / 8)
        x = ruda.asarray(normal(256, 128, seed=seed + 9))
        step = ruda.compile(lambda x: F.relu(x @ w) @ w)
        expected = (F.relu(x @ w) @ w).numpy()
        for _ in range(60):
            if not np.allclose(step(x).numpy(), expected, rtol=1e-5, atol=1e-4):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_tables_that_are_gone_leave_their_memory_to_others() -> None:
    w, x = ruda.asarray(normal(128, 128)), ruda.asarray(normal(256, 128))
    expected = (F.relu(x @ w) @ w).numpy()
    left = []
    for _ in range(20):
        step = ruda.compile(lambda x: F.relu(x @ w) @ w)
        close(step(x).numpy(), expected)
        del step
        gc.collect()
        left.append(sum(map(len, crew._MEMORY.free.values())))
    assert left[-1] == left[0]


@pytest.mark.skipif(
    not hasattr(os, "fork"),
    reason="no copies of processes on Windows",
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    w, x = ruda.asarray(normal(128, 128)), ruda.asarray(normal(256, 128))
    step = ruda.compile(lambda x: F.relu(x @ w) @ w)
    expected = step(x).numpy().copy()

    def child() -> None:
        for _ in range(5):
            np.testing.assert_array_equal(step(x).numpy(), expected)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_switched_off_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDA_CPU_KERNELS", "off")
    step, x, _ = training("network", True)
    step(x)
    assert not segments(step)


def test_explain_says_how_many_operators_are_one_call() -> None:
    step, x, _ = training("network", True)
    step(x)
    assert " of them in 1 call(s)" in step.explain()
