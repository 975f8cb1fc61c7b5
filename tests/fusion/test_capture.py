"""What a step cannot hold is refused with the user's line; what it reads once is reported."""

from __future__ import annotations

import copy
import inspect
import math
import os
import pickle
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import ArgumentError, CaptureError
from ruda.fusion import shadow
from tests.fusion.twins import bits

X = ruda.asarray([1.0, 2.0])


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


READS: list[Callable[[Any], Any]] = [
    lambda x: x.sum().item(),
    lambda x: float(x.sum()),
    lambda x: int(x.sum()),
    branch,
    lambda x: print(x),
    lambda x: f"{x}",
    lambda x: x.numpy(),
    lambda x: x.tolist(),
    lambda x: [1, 2][x.astype("int64")[0]],
    lambda x: ruda.nonzero(x),
    lambda x: x[x > 1.0],
]


@pytest.mark.parametrize("read", READS, ids=range(len(READS)))
def test_reading_a_value_names_the_line(read: Callable[[Any], Any]) -> None:
    line = inspect.getsourcelines(read)[1] + (read is branch)
    with pytest.raises(CaptureError, match=rf"test_capture\.py:{line} in (<lambda>|branch)"):
        ruda.compile(read)(X)


def test_reading_an_array_names_the_line() -> None:
    with pytest.raises(CaptureError, match=r"test_capture\.py:\d+ in <lambda>"):
        ruda.compile(lambda x: np.asarray(x))(X)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, rate: x * math.sqrt(rate),
        lambda x, rate: x if rate else -x,
        lambda x, rate: x if rate > 0.5 else -x,
        lambda x, rate: x * float(rate),
        lambda x, rate: x * round(rate),
        lambda x, rate: f"{rate:.2f}",
        lambda x, rate: x * {1.0: 2}.get(rate, 1),
        lambda x, rate: ruda.zeros((rate,)),
        lambda x, rate: F.dropout(x, rate),
        lambda x, rate: F.layer_norm(x, eps=rate),
        lambda x, rate: ruda.full((2,), rate),
        lambda x, rate: ruda.asarray([[rate, 1.0]]),
        lambda x, rate: ruda.linspace(0.0, rate, 3),
        lambda x, rate: ruda.pad(x, 1, value=rate),
        lambda x, rate: ruda.random.normal((2,), 0.0, rate),
        lambda x, rate: F.attention(*[x[None, None, None]] * 3, scale=rate),
    ],
)
def test_the_value_of_a_float_argument_is_not_known(use: Any) -> None:
    with pytest.raises((CaptureError, TypeError)) as caught:
        ruda.compile(use)(X, 0.5)
    if isinstance(caught.value, CaptureError):
        assert "argument 1" in str(caught.value)
        assert "test_capture.py" in str(caught.value)


def test_the_repr_of_a_traced_tensor_is_safe() -> None:
    seen = []

    def step(x: Any) -> Any:
        text = repr(x * 2.0)
        assert "traced" in text
        return x

    ruda.compile(step)(X)
    assert not seen


def test_a_tensor_that_escapes_says_so_when_it_is_used() -> None:
    class Bag:
        pass

    bag = Bag()
    place = {"name": "kept"}

    def seen(x: Any) -> Any:
        setattr(bag, place["name"], x * 2.0)
        return x * 1.0

    def escaping(x: Any) -> Any:
        object.__setattr__(bag, place["name"], x * 2.0)
        return x * 1.0

    with pytest.raises(CaptureError, match="kept is changed while tracing"):
        ruda.compile(seen)(X)
    assert not vars(bag)
    ruda.compile(escaping)(X)
    with pytest.raises(CaptureError, match="belongs to a trace"):
        bag.kept + 1.0
    with pytest.raises(CaptureError, match="earlier trace"):
        ruda.compile(lambda x: bag.kept * x)(X)

    def boxed(x: Any) -> Any:
        out = Bag()
        out.value = x * 2.0
        return out

    with pytest.raises(CaptureError, match="object that holds tensors"):
        ruda.compile(boxed)(X)


def test_histories_from_outside_are_refused() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    scaled = weight * 2.0
    with pytest.raises(CaptureError, match="history from outside"):
        ruda.compile(lambda x: (x * scaled).sum())(X)
    with pytest.raises(CaptureError, match="recorded outside"):
        ruda.compile(lambda x: (x * x).sum().backward())(scaled)
    total = (scaled * scaled).sum()
    with pytest.raises(CaptureError, match="recorded outside"):
        ruda.compile(lambda: total.backward())()
    total.backward()
    assert weight.grad.tolist() == [8.0, 16.0]


def test_changing_the_tape_of_outside_tensors_is_refused() -> None:
    weight = ruda.tensor([1.0, 2.0])
    with pytest.raises(CaptureError, match="requires_grad: a tensor from outside"):
        ruda.compile(lambda: weight.requires_grad_())()
    weight.requires_grad_()
    with pytest.raises(CaptureError, match="hooks: a tensor from outside"):
        ruda.compile(lambda: weight.register_hook(lambda g: g))()
    assert weight.node.hooks is None
    assert ruda.compile(lambda x: (x * 2.0).requires_grad_())(X).requires_grad


def test_generators_and_coroutines_are_refused() -> None:
    def produce() -> Any:
        yield 1

    async def wait() -> None:
        pass

    for fn in (produce, wait):
        with pytest.raises(ArgumentError, match="generator or coroutine"):
            ruda.compile(fn)
    with pytest.raises(ArgumentError, match="not a function"):
        ruda.compile(3)
    with pytest.raises(ArgumentError, match="max_signatures"):
        ruda.compile(branch, max_signatures=0)


def test_nested_and_recursive_compiled_functions_are_inlined() -> None:
    scale = ruda.ones(())

    @ruda.compile
    def inner(x: Any, rate: float) -> Any:
        scale.assign(scale * 2.0)
        return x * rate

    @ruda.compile
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x, n - 1) * x

    outer = ruda.compile(lambda x, rate: inner(x, rate) + power(x, 3))
    assert outer(X, 2.0).tolist() == [3.0, 20.0]
    assert outer(X, 0.0).tolist() == [1.0, 16.0]
    assert scale.item() == 4.0
    assert inner.programs == {}
    assert outer.fn(X, 2.0).tolist() == [3.0, 20.0]


def test_inside_checkpoint_the_body_is_inlined() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    compiled = ruda.compile(lambda x: (x * x * weight).sum())
    ruda.checkpoint(compiled, weight).backward()
    assert weight.grad.tolist() == [3.0, 12.0]


def test_checkpoint_and_random_numbers_inside_of_a_step() -> None:
    def build() -> Any:
        weight = ruda.tensor([1.0, 2.0, 3.0], requires_grad=True)
        generator = ruda.random.Generator(5)

        def part(x: Any) -> Any:
            return x * x * ruda.random.uniform((3,), generator=generator)

        def step() -> Any:
            ruda.checkpoint(part, weight).sum().backward()
            grad, weight.grad = weight.grad, None
            return grad

        return step, generator

    (step, _), (eager, generator) = build(), build()
    compiled = ruda.compile(step)
    for _ in range(3):
        assert bits(compiled()) == bits(eager())
    assert generator.draw == 3


def test_lint_finds_clocks_and_foreign_random_numbers() -> None:
    rng, local = np.random.default_rng(0), random.Random(1)

    def step(x: Any) -> Any:
        seconds = time.time()
        noise = rng.random() + np.random.rand() + random.random() + local.random()
        size = len(os.environ)
        return x * seconds + noise + size

    compiled = ruda.compile(step)
    compiled(X)
    text = "\n".join(map(str, compiled.lint()))
    for name in ("time.time", "numpy.random", "rand", "random", "os.environ"):
        assert name in text
    assert "test_capture.py" in text
    assert ruda.compile(lambda x: x * math.pi).lint() == []
    clean = ruda.compile(lambda x: x * math.pi + np.float32(1))
    clean(X)
    assert clean.lint() == []


def test_explain_shows_operators_lines_state_and_guards() -> None:
    total = ruda.zeros(())

    @ruda.compile
    def step(x: Any, rate: float) -> Any:
        total.assign(total + rate)
        return ruda.exp(x)

    assert "0 signature" in step.explain()
    step(X, 0.5)
    text = step.explain()
    for part in (
        "1 signature",
        "exp(",
        "test_capture.py",
        "in step",
        "written: total",
        "argument 1",
    ):
        assert part in text


def test_a_profiler_and_coverage_do_not_collide() -> None:
    import cProfile
    import sys

    calls = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        assert ruda.compile(lambda x: x * 2.0)(X).tolist() == [2.0, 4.0]
        hook = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert hook is not None
    profile = cProfile.Profile()
    profile.enable()
    try:
        assert ruda.compile(lambda x: x * 2.0)(X).tolist() == [2.0, 4.0]
    finally:
        profile.disable()


def test_the_shadow_check_compares_and_puts_everything_back() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    total = ruda.zeros(())
    generator = ruda.random.Generator(3)

    @ruda.compile
    def step(x: Any) -> Any:
        loss = (weight * x * ruda.random.uniform((2,), generator=generator)).sum()
        loss.backward()
        grad = weight.grad
        with ruda.no_grad():
            weight.assign(weight - grad)
            total.assign(total + loss)
        weight.grad = None
        return loss

    before = bits([weight, total])
    report = step.check(X)
    assert {entry.name for entry in report.entries} == {
        "output 0",
        "state 0",
        "state 1",
        "gradient 0",
    }
    assert report.worst == 0.0
    assert bits([weight, total]) == before
    assert generator.draw == 0
    assert weight.grad is None
    step(X)
    assert step.check(X).worst == 0.0


def test_the_shadow_check_sees_a_difference_and_says_when_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = ruda.zeros((4,))

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state + 1.0)
        return x * 2.0

    step.memory(X)
    program = _only(step)
    instruction = next(i for i in program.graph.instructions if i.op == "multiply")
    run = instruction.run
    monkeypatch.setattr(instruction, "run", lambda h, c: run(h, 2.5))
    program.bind()
    report = step.check(X)
    assert report.worst == pytest.approx(0.25)
    monkeypatch.setattr(shadow, "_available", lambda client: 0)
    assert "skipped: needs" in str(step.check(X))


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "wanted", "ratio"),
    [
        ([1.0, INFINITE, NAN], [1.0, INFINITE, NAN], 0.0),
        ([1.5, INFINITE, NAN], [1.0, INFINITE, NAN], 0.5),
        ([1.0, INFINITE], [1.0, -INFINITE], INFINITE),
        ([NAN, 1.0], [1.0, 1.0], INFINITE),
        ([1.0, 1.0], [NAN, 1.0], INFINITE),
        ([1.0, 2.0], [INFINITE, 2.0], INFINITE),
        ([3.0, 1e300], [3.0, 2e300], 0.5),
        ([1.0], [0.0], INFINITE),
        ([], [], 0.0),
        ([3 + 0j, INFINITE + 1j], [3 + 3j, INFINITE + 1j], 0.5**0.5),
    ],
    ids=range(10),
)
def test_no_difference_hides_behind_infinities(found: Any, wanted: Any, ratio: float) -> None:
    assert shadow._ratio(np.array(found), np.array(wanted)) == pytest.approx(ratio)
    later = shadow.Entry("output 1", shadow._ratio(np.array(found), np.array(wanted)))
    assert shadow.Report((shadow.Entry("output 0", 0.0), later)).worst == pytest.approx(ratio)


def _only(compiled: Any) -> Any:
    ((program,),) = compiled.programs.values()
    return program


def test_generators_made_or_moved_inside_are_refused() -> None:
    generator = ruda.random.Generator(1)
    for act in (
        lambda: ruda.random.Generator(2),
        lambda: generator.manual_seed(5),
        lambda: generator.split(2),
        lambda: generator.jump(),
        lambda: generator.advance(1),
        lambda: generator.load_state_dict({"seed": 1, "draw": 4}),
    ):
        with pytest.raises(CaptureError, match=r"while tracing, at .*test_capture\.py"):
            ruda.compile(act)()
    assert (generator.seed, generator.draw) == (1, 0)


def test_an_iterator_is_refused() -> None:
    batches = iter([X, X + 1.0])
    with pytest.raises(CaptureError, match="batches is an iterator"):
        ruda.compile(lambda: next(batches) * 2.0)()
    assert next(batches) is X


def test_reads_that_cannot_be_guarded_are_reported() -> None:
    compiled = ruda.compile(lambda x: x * eval("2.0"))
    compiled(X)
    assert [finding.what for finding in compiled.lint()] == ["what eval() reads is not guarded"]


@ruda.compile
def at_module_level(x: Any) -> Any:
    return x * 2.0


def test_compiled_functions_pickle_and_copy() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    at_module_level(X)
    other = copy.deepcopy(ruda.compile(branch, max_signatures=3))
    assert other.fn is branch
    assert other.max_signatures == 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there from 3.12 on")
@pytest.mark.parametrize("taken", [0, 6])
def test_other_tools_of_the_interpreter_stay(taken: int) -> None:
    """From Python 3.12 on a trace is one of six tools, and a hook where all six are taken."""
    monitoring: Any = sys.monitoring
    free = [n for n in range(6) if monitoring.get_tool(n) is None][:taken]
    for tool in free:
        monitoring.use_tool_id(tool, "another")
    try:
        scale = [2.0]
        run = ruda.compile(lambda x: x * scale[0])
        assert run(X).tolist() == [2.0, 4.0]
        scale[0] = 3.0
        assert run(X).tolist() == [3.0, 6.0]
        assert all(monitoring.get_tool(tool) == "another" for tool in free)
    finally:
        for tool in free:
            monitoring.free_tool_id(tool)


def test_what_other_threads_run_is_not_of_the_trace() -> None:
    import sys
    import threading

    done, count = threading.Event(), [0]

    def counted() -> None:
        count[0] += 1

    def other() -> None:
        while not done.is_set():
            counted()

    def step(x: Any) -> Any:
        for _ in range(30):
            x = x * 1.0
        return x

    thread, interval = threading.Thread(target=other), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        before = count[0]
        for _ in range(5):
            assert ruda.compile(step)(X).tolist() == [1.0, 2.0]
        assert count[0] > before
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
