"""State: what a compiled step writes, when it writes it, and that a failure writes nothing."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError, GradientError, ShapeError
from ruda.fusion.commit import uninterrupted
from tests.fusion.twins import batches, bits, run_twins


def test_a_counter_counts_each_replay() -> None:
    count = ruda.zeros((), dtype="int64")

    @ruda.compile
    def tick() -> Any:
        count.assign(count + 1)
        return count

    seen = [tick() for _ in range(4)]
    assert [t.item() for t in seen] == [1, 2, 3, 4]
    assert count.item() == 4


def test_the_first_call_applies_its_changes_once() -> None:
    total = ruda.zeros(())

    @ruda.compile
    def step(x: Any) -> None:
        total.assign(total + x.sum())

    step(ruda.ones(3))
    step(ruda.ones(3))
    assert total.item() == 6.0


def test_assignment_through_views_reaches_base_and_other_views() -> None:
    def build() -> Any:
        base = ruda.asarray(np.arange(12, dtype="float32").reshape(3, 4).copy())
        row, column, turned = base[1], base[:, 2], base.reshape((4, 3))

        def step(x: Any) -> Any:
            late = base.mT
            row.assign(x)
            first = column.sum()
            base[0:2, 1].assign(base[1:3, 3] * 2.0)
            turned[3].assign(7.0)
            return first, late.sum(), row * 1.0, column * 1.0, turned.sum()

        return step, lambda: [base, row, column, turned]

    run_twins(build, [(x,) for x in batches(4, 4)])


def test_views_made_inside_of_the_step_follow_their_base() -> None:
    def build() -> Any:
        def step(x: Any) -> Any:
            y = x * 2.0
            corner = y[1:, 1:]
            y += 1.0
            corner *= 3.0
            flipped = ruda.flip(y, axis=0)
            y[0].assign(0.0)
            return y, corner, flipped * 1.0

        return step, list

    run_twins(build, [(x,) for x in batches(3, 3, 3)])


def test_two_tensors_swap_their_contents() -> None:
    def build() -> Any:
        a, b = ruda.ones((3,)), ruda.zeros((3,))

        def swap() -> None:
            old = a * 1.0
            a.assign(b)
            b.assign(old)

        def rotate() -> None:
            # Views of state as new state: the commit must not read what it has written.
            a.assign(ruda.flip(b, axis=0))
            b.assign(a)
            swap()

        return rotate, lambda: [a, b]

    run_twins(build, [()] * 4)


def test_an_argument_is_changed_in_place() -> None:
    @ruda.compile
    def double(x: Any) -> None:
        x *= 2.0

    for start in (1.0, 3.0):
        x = ruda.full((2,), start)
        double(x)
        assert x.tolist() == [2 * start] * 2


def test_a_slice_of_a_larger_argument_is_changed_in_place() -> None:
    @ruda.compile
    def double(x: Any) -> Any:
        x *= 2.0
        return x.sum()

    base = ruda.asarray(np.arange(6, dtype="float32"))
    for i in (1, 2, 3):
        assert double(base[1:3]).item() == 3.0 * 2**i
        assert double(base[3:5]).item() == 7.0 * 2**i
    assert base.tolist() == [0, 8, 16, 24, 32, 5]


def test_one_tensor_as_two_arguments_or_as_argument_and_state() -> None:
    state = ruda.ones((2,))

    def step(x: Any, y: Any) -> Any:
        x.assign(x + 1.0)
        state.assign(state * 10.0)
        return y * 1.0

    compiled = ruda.compile(step)
    a, b = ruda.zeros((2,)), ruda.ones((2,))
    assert compiled(a, b).tolist() == [1.0, 1.0]
    assert compiled(a, a).tolist() == [2.0, 2.0]
    assert compiled(state, b).tolist() == [1.0, 1.0]
    assert state.tolist() == [1010.0, 1010.0]
    assert compiled(b, state).tolist() == [10100.0, 10100.0]
    assert a.tolist() == [2.0, 2.0]


def test_an_argument_that_aliases_state_at_a_later_call() -> None:
    state = ruda.ones((2,))

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state + 1.0)
        return x * 1.0

    assert step(ruda.zeros((2,))).tolist() == [0.0, 0.0]
    assert step(state).tolist() == [3.0, 3.0]
    assert step(state[:]).tolist() == [4.0, 4.0]


def test_memory_shared_through_numpy_is_refused_or_right() -> None:
    values = np.zeros(4, "float32")
    left, right = ruda.asarray(values), ruda.asarray(values)

    @ruda.compile
    def step(x: Any) -> Any:
        left.assign(left + 1.0)
        return x * 1.0

    assert step(ruda.ones((4,))).tolist() == [1.0] * 4
    with pytest.raises(CaptureError, match="share memory that only NumPy knows of"):
        step(right)
    assert left.tolist() == [1.0] * 4


@pytest.mark.parametrize("start", [None, 0.5])
def test_gradients_set_inside_appear_on_the_leaf(start: float | None) -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    weight.grad = None if start is None else ruda.full((2,), start)
    before = weight.grad

    @ruda.compile
    def step(x: Any) -> None:
        (weight * x).sum().backward()

    step(ruda.ones((2,)))
    assert weight.grad.tolist() == [1.0 + (start or 0.0)] * 2
    assert start is None or weight.grad is before


def test_a_gradient_made_and_dropped_inside_is_never_there() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)

    @ruda.compile
    def step() -> Any:
        (weight * 2.0).sum().backward()
        grad = weight.grad * 1.0
        weight.grad = None
        return grad

    assert step().tolist() == [2.0, 2.0]
    assert weight.grad is None


def test_a_leaf_that_the_step_makes_is_its_own_affair() -> None:
    def step(x: Any) -> Any:
        inner, other = x.detach().requires_grad_(), (x * 2.0).detach().requires_grad_()
        (inner * inner + other).sum().backward()
        return inner.grad, other.grad

    compiled = ruda.compile(step)
    for x in batches(3, 4):
        found = compiled(x)
        assert bits(found) == bits(step(x))
        assert found[0].handle is not found[1].handle
    assert repr(compiled).endswith("1 signature(s)>")
    assert "gradients set: 0" in compiled.explain()


def test_gradients_of_an_argument_belong_to_that_argument() -> None:
    @ruda.compile
    def step(x: Any) -> None:
        (x * x).sum().backward()

    leaves = [ruda.tensor([v], requires_grad=True) for v in (1.0, 2.0)]
    for leaf in leaves:
        step(leaf)
    assert [leaf.grad.tolist() for leaf in leaves] == [[2.0], [4.0]]
    step(leaves[0])
    assert leaves[0].grad.tolist() == [4.0]


def test_each_replay_makes_its_own_gradient() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)

    @ruda.compile
    def step(x: Any) -> None:
        (weight * x).sum().backward()

    kept = []
    for value in (1.0, 2.0):
        weight.grad = None
        step(ruda.full((1,), value))
        kept.append(weight.grad)
    assert [g.item() for g in kept] == [1.0, 2.0]


def world() -> tuple[Any, Any, Any]:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    total, box = ruda.zeros(()), {"calls": 0}
    return weight, total, box


def facts(*tensors: Any) -> list[Any]:
    handles = [(t.handle, t.handle.version, t.node, bits(t)) for t in tensors]
    return [*handles, *(t.grad for t in tensors)]


def test_a_failed_trace_leaves_every_object_untouched() -> None:
    weight, total, box = world()
    generator = ruda.random.Generator(1)

    @ruda.compile
    def step(x: Any) -> None:
        box["calls"] += 1
        (weight * x).sum().backward()
        total.assign(weight.sum())
        with ruda.no_grad():
            weight.assign(weight - weight.grad)
        ruda.random.uniform((2,), generator=generator)
        weight.reshape((3,))

    before = facts(weight, total)
    with pytest.raises(ShapeError):
        step(ruda.ones((2,)))
    assert facts(weight, total) == before
    assert box == {"calls": 0}
    assert generator.draw == 0


def test_a_replay_that_fails_commits_nothing() -> None:
    total = ruda.zeros(())
    table = ruda.asarray([1.0, 2.0, 3.0])

    @ruda.compile
    def step(places: Any) -> Any:
        total.assign(total + 1.0)
        return ruda.take(table, places)

    step(ruda.asarray([0, 2]))
    with pytest.raises(IndexError) as caught:
        step(ruda.asarray([0, 7]))
    assert total.item() == 1.0
    assert any("test_state.py" in note for note in caught.value.__notes__)


def test_a_number_that_cannot_be_made_commits_nothing() -> None:
    total, x = ruda.zeros(()), ruda.ones((2,))
    generator = ruda.random.Generator(1)

    @ruda.compile
    def step(x: Any, rate: float) -> Any:
        total.assign(total + 1.0)
        return x * (1.0 / rate) + ruda.random.uniform((2,), generator=generator)

    for _ in range(3):
        step(x, 2.0)
    with pytest.raises(ZeroDivisionError):
        step(x, 0.0)
    assert (total.item(), generator.draw) == (3.0, 3)
    step(x, 2.0)
    assert (total.item(), generator.draw) == (4.0, 4)


def test_read_only_state_is_refused_before_anything_is_written() -> None:
    values = np.zeros(2, "float32")
    values.flags.writeable = False
    frozen, free = ruda.asarray(values), ruda.zeros((2,))

    @ruda.compile
    def step() -> None:
        free.assign(free + 1.0)
        frozen.assign(frozen + 1.0)

    with pytest.raises(ValueError, match="read-only"):
        step()
    assert free.tolist() == [0.0, 0.0]


class Interrupted(BaseException):
    """Raised by the handler of an interrupt from the keyboard, once each time it is armed."""


def test_an_interrupt_never_splits_a_commit() -> None:
    tensors = [ruda.zeros((50,)) for _ in range(30)]
    armed, stop = [False], threading.Event()

    @ruda.compile
    def step() -> None:
        for tensor in tensors:
            tensor.assign(tensor + 1.0)

    def handle(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupted

    def interrupt() -> None:
        while not stop.wait(0.0007):
            _thread.interrupt_main()

    step()
    before = signal.signal(signal.SIGINT, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    interrupts, whole, deadline = 0, True, time.monotonic() + 1.0
    while time.monotonic() < deadline and whole:
        try:
            armed[0] = True
            for _ in range(50):
                step()
            armed[0] = False
        except Interrupted:
            interrupts += 1
            states = {(t.numpy()[0].item(), t.handle.version) for t in tensors}
            whole = len(states) == 1
    stop.set()
    thread.join()
    signal.signal(signal.SIGINT, before)
    assert whole
    assert interrupts > 10


def test_versions_move_as_in_eager_code() -> None:
    state, other = ruda.zeros((2,)), ruda.zeros((2,))

    def step(t: Any) -> None:
        t.assign(t + 1.0)
        t[0].assign(5.0)

    compiled = ruda.compile(lambda: step(state))
    for _ in range(2):
        compiled()
        step(other)
        assert state.handle.version == other.handle.version
    saved = ruda.tensor([1.0, 1.0], requires_grad=True) * state
    compiled()
    with pytest.raises(GradientError, match="changed in place"):
        saved.sum().backward()


def test_a_value_saved_before_a_change_in_the_step_raises_as_in_eager_code() -> None:
    weight = ruda.tensor([1.0, 2.0], requires_grad=True)
    scale = ruda.ones((2,))

    @ruda.compile
    def step() -> None:
        loss = (weight * scale).sum()
        scale.assign(scale + 1.0)
        loss.backward()

    with pytest.raises(GradientError, match="changed in place"):
        step()
    assert scale.tolist() == [1.0, 1.0]
    assert weight.grad is None


def test_host_data_inside_is_fresh_in_each_replay() -> None:
    @ruda.compile
    def step(x: Any) -> Any:
        table = ruda.tensor([1.0, 2.0])
        table += x
        return table

    first = step(ruda.ones((2,)))
    assert step(ruda.ones((2,))).tolist() == [2.0, 3.0]
    assert first.tolist() == [2.0, 3.0]


def test_state_that_keeps_a_history_is_refused() -> None:
    weight = ruda.tensor([1.0], requires_grad=True)
    kept = ruda.zeros((1,))

    @ruda.compile
    def step() -> None:
        kept.assign(weight * 2.0)

    with pytest.raises(CaptureError, match="history"):
        step()
    assert kept.node is None


def test_threads_share_one_compiled_step() -> None:
    total = ruda.zeros(())

    @ruda.compile
    def step(x: Any) -> Any:
        total.assign(total + 1.0)
        return x * 2.0

    failures: list[Any] = []

    def work(value: float) -> None:
        for _ in range(50):
            if step(ruda.full((2,), value)).tolist() != [2 * value] * 2:
                failures.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert total.item() == 200.0


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_is_heard_behind_a_block_however_it_ends(fails: bool) -> None:
    seen = []

    def block() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            seen.append("went on")
            if fails:
                raise ValueError

    with pytest.raises(KeyboardInterrupt) as caught:
        block()
    assert seen == ["went on"]
    assert (caught.value.__context__.__class__ is ValueError) is fails
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
