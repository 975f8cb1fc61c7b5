"""What is promised of ``ruda.compile``: a captured step equals an eager one, or raises."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.random
from ruda import nn, optim

FACTOR = 2.0


def training(compiled: bool, steps: int = 4) -> tuple[list[float], list[Any], Any]:
    """Losses, final weights and gradients of a little training run with dropout and clipping."""
    ruda.random.seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    opt = optim.AdamW(model.parameters(), lr=0.05)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 6)), rng.integers(0, 3, 16)

    def step(data: Any, target: Any) -> Any:
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        norm = optim.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        return loss, norm

    run = ruda.compile(step) if compiled else step
    batch = ruda.asarray(x, dtype="float32"), ruda.asarray(y)
    losses = [float(v) for _ in range(steps) for v in run(*batch)]
    return losses, [p.detach().numpy() for p in model.parameters()], ruda.random.normal((2,))


def test_a_whole_step_equals_the_eager_one() -> None:
    eager, captured = training(False), training(True)
    # The same float32 operators in the same order; fusion may only reassociate within a rounding.
    np.testing.assert_allclose(captured[0], eager[0], rtol=1e-6)
    for mine, theirs in zip(captured[1], eager[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    assert captured[2].tolist() == eager[2].tolist(), "the generator stands where it would"


def test_gradients_accumulate_over_calls_as_eagerly() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    step = ruda.compile(lambda s: (x * x * s).sum().backward())
    for i in range(1, 4):
        step(1.0)
        assert x.grad.tolist() == [2 * i, 4 * i]
    x.grad = None
    step(3.0)
    assert x.grad.tolist() == [6, 12]


READS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: x if x.sum() > 0 else -x,
    "float": lambda x: x * float(x.sum()),
    "int": lambda x: x * int(x.sum()),
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "tolist": lambda x: x.tolist(),
    "str": str,
    "format": lambda x: f"{x.sum():.2f}",
    "index": lambda x: [1, 2, 3][x.astype("int32")[0]],
    "range": lambda x: list(range(x.sum().astype("int32"))),
    "mask": lambda x: x[x > 0],
    "nonzero": ruda.nonzero,
    "unique": ruda.unique,
    "in": lambda x: 1.0 in x,
    "allclose": lambda x: 1 if ruda.allclose(x, x) else 0,
    "dlpack": np.from_dlpack,
    "deepcopy": copy.deepcopy,
    "data_ptr": lambda x: x.data_ptr(),
    "a list of tensors": lambda x: ruda.asarray([x.sum(), 1.0]),
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_value_raises_with_its_line(name: str) -> None:
    x = ruda.ones(3)
    READS[name](x)
    step = ruda.compile(READS[name])
    for _ in range(2):
        with pytest.raises(ruda.CaptureError, match=r"test_compile\.py:\d+ in .* Try "):
            step(x)
    assert step.fn(x) is not None and x.tolist() == [1, 1, 1]


def test_a_failed_trace_leaves_everything_as_it_was() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    state = ruda.zeros(2)
    generator = ruda.random.Generator(1)

    @ruda.compile
    def step() -> Any:
        (x * x).sum().backward()
        state.assign(state + 1)
        state[0] = 9.0
        ruda.random.normal((2,), generator=generator)
        return state.sum().item()

    with pytest.raises(ruda.CaptureError, match=r"^item: "):
        step()
    assert x.grad is None and state.tolist() == [0, 0] and generator.draw == 0


def test_an_error_in_the_middle_of_a_step_commits_nothing() -> None:
    state, places = ruda.zeros(2), ruda.asarray([0, 1])

    @ruda.compile
    def step(index: Any) -> Any:
        state.assign(state + 1)
        return state[index]

    assert step(places).tolist() == [1, 1]
    with pytest.raises(ruda.IndexRangeError):
        step(ruda.asarray([0, 7]))
    assert state.tolist() == [1, 1]
    assert step(places).tolist() == [2, 2]


def test_guards_see_arguments_globals_defaults_and_closures(monkeypatch: Any) -> None:
    inner = 1.0

    def step(x: Any, n: int = 2, flag: bool = True) -> Any:
        return x * FACTOR * n + (inner if flag else 0.0)

    run, x = ruda.compile(step), ruda.ones(2)
    assert run(x).tolist() == step(x).tolist() == [5, 5]
    inner = 10.0
    assert run(x).tolist() == [14, 14]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert run(x).tolist() == [16, 16]
    step.__defaults__ = (5, True)
    assert run(x).tolist() == [25, 25]
    assert run(x, 1).tolist() == [13, 13] and run(x, flag=False).tolist() == [15, 15]
    assert run(ruda.ones((2, 1))).shape == (2, 1)
    assert run(x.astype("float64")).dtype is ruda.float64


def test_guards_see_modules_and_optimizers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    run, x = ruda.compile(lambda t: model(t)), ruda.ones((64, 2))
    assert (run(x) == 0).any()
    model.eval()
    assert run(x).tolist() == model(x).tolist()
    model[0] = nn.Linear(2, 2)
    assert run(x).tolist() == model(x).tolist()


def test_float_arguments_are_values_and_need_no_new_trace() -> None:
    run = ruda.compile(lambda x, rate: x * rate, max_signatures=1)
    for rate in np.linspace(0, 1, 20):
        assert run(ruda.ones(1), float(rate)).item() == pytest.approx(rate, rel=1e-7)


def test_too_many_signatures_name_what_keeps_changing() -> None:
    run = ruda.compile(lambda x, n: x * n, max_signatures=3)
    for n in range(3):
        run(ruda.ones(1), n)
    with pytest.raises(ruda.CaptureError, match=r"more than 3 signatures, because .*n"):
        run(ruda.ones(1), 3)


def test_an_output_that_is_still_referenced_is_not_overwritten() -> None:
    state = ruda.zeros(2)

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state + x)
        return state * 1, x * 2, state

    outputs = [step(ruda.ones(2) * i) for i in range(4)]
    assert [first.tolist()[0] for first, _, _ in outputs] == [0, 1, 3, 6]
    assert [second.tolist()[0] for _, second, _ in outputs] == [0, 2, 4, 6]
    views = [step(ruda.ones(2))[0][::-1] for _ in range(3)]
    assert [v.tolist()[0] for v in views] == [7, 8, 9]


def test_views_whose_base_is_gone_are_written_as_eagerly() -> None:
    def step(t: Any) -> Any:
        base = t * 2
        view = base[::-1]
        kept = view[:2]
        del base
        view[...] = view * 3
        return view, kept

    x = ruda.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for run in (step, ruda.compile(step)):
        view, kept = run(x)
        assert view.tolist() == [18, 12, 6] and kept.tolist() == [18, 12]


def test_default_dtypes_are_guarded() -> None:
    run, x = ruda.compile(lambda t: t * 0.5), ruda.asarray([1, 3])
    assert run(x).dtype is ruda.float32
    try:
        ruda.set_default_dtypes(floating="float64")
        assert run(x).dtype is ruda.float64
    finally:
        ruda.set_default_dtypes(floating="float32")
    assert run(x).dtype is ruda.float32


def test_an_array_argument_is_refused_rather_than_frozen() -> None:
    with pytest.raises(ruda.CaptureError, match="NumPy array"):
        ruda.compile(lambda a: ruda.ones(2) * a)(np.ones(2))


@pytest.mark.parametrize("bad", [3, "f", [abs]])
def test_only_functions_compile(bad: Any) -> None:
    with pytest.raises(ruda.ArgumentError, match=r"^compile: not a function"):
        ruda.compile(bad)


class Interrupting:
    """Raise KeyboardInterrupt in the block before its n-th call of a C function; 0 only counts."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __enter__(self) -> Interrupting:
        sys.setprofile(self._seen)
        return self

    def _seen(self, frame: Any, event: str, arg: Any) -> None:
        self.left -= event == "c_call"
        if self.left == 0 and event == "c_call":
            self.left = -1
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def test_an_interrupted_step_commits_all_or_nothing() -> None:
    a, b, c = ruda.zeros(3), ruda.zeros(3), ruda.zeros(3)

    @ruda.compile
    def step(x: Any) -> Any:
        a.assign(a + x)
        b.assign(b + ruda.tanh(x) * 0 + x)
        c.assign(ruda.exp(a) * 0 + b)
        return c * 1

    one = ruda.ones(3)
    step(one)
    for at in range(1, 1000):
        before = a.tolist()[0]
        try:
            with Interrupting(at):
                step(one)
        except KeyboardInterrupt:
            now = {t.tolist()[0] for t in (a, b, c)}
            assert now in ({before}, {before + 1}), "state of two different steps"
        else:
            break
    assert at > 10, "interrupted at many places, until one lay behind the step"
    assert step(one).tolist() == a.tolist() == [before + 2] * 3


def test_an_interrupted_eager_loop_goes_on_from_what_was_saved() -> None:
    def made() -> tuple[Any, Any]:
        ruda.random.seed(1)
        model = nn.Linear(3, 1)
        return model, optim.AdamW(model.parameters(), lr=0.1)

    x = ruda.asarray(np.random.default_rng(0).standard_normal((8, 3)), dtype="float32")

    def step(model: Any, opt: Any) -> None:
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()

    model, opt = made()
    for _ in range(5):
        step(model, opt)
    expected = [p.tolist() for p in model.parameters()]
    with Interrupting(0) as watched:
        step(model, opt)
    calls = -watched.left
    for at in (3, *(calls * part // 10 for part in (2, 4, 7, 9))):
        model, opt = made()
        for _ in range(3):
            step(model, opt)
        saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
        with pytest.raises(KeyboardInterrupt), Interrupting(at):
            step(model, opt)
        assert all(np.isfinite(p.detach().numpy()).all() for p in model.parameters())
        model.load_state_dict(saved[0])
        opt.load_state_dict(saved[1])
        opt.zero_grad()
        for _ in range(2):
            step(model, opt)
        assert [p.tolist() for p in model.parameters()] == expected
