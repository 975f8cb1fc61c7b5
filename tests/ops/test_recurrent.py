"""Recurrent networks beside those of PyTorch with the same weights, and packed sequences."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.testing import assert_close
from tests.ops.peer import assert_near, backward, torch

T, N, D, H = 6, 3, 4, 5
STACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("RNN", {}),
    "rnn relu": ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
    "rnn both ways": ("RNN", {"bidirectional": True, "bias": False}),
    "lstm": ("LSTM", {}),
    "lstm deep both ways": ("LSTM", {"num_layers": 3, "bidirectional": True}),
    "lstm projected": ("LSTM", {"num_layers": 2, "bidirectional": True, "proj_size": 3}),
    "lstm without bias": ("LSTM", {"bias": False, "batch_first": True}),
    "gru": ("GRU", {}),
    "gru deep both ways": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "gru without bias": ("GRU", {"bias": False}),
}


def twins(name: str, *sizes: int, **options: Any) -> tuple[Any, Any]:
    """The same module of both libraries, in float64, with the weights of ruda's."""
    own = getattr(nn, name)(*sizes, **options, generator=ruda.random.Generator(3))
    return twinned(own, getattr(torch().nn, name)(*sizes, **options))


def twinned(own: Any, other: Any) -> tuple[Any, Any]:
    own.to("float64")
    state = {k: torch().tensor(v.numpy(copy=True)) for k, v in own.state_dict().items()}
    other.double().load_state_dict(state)
    return own, other


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def flat(result: Any) -> list[Any]:
    """The tensors of nested tuples."""
    if isinstance(result, tuple):
        return [part for item in result for part in flat(item)]
    return [result]


def assert_twins(own: Any, other: Any, inputs: list[Any], judged: list[Any]) -> None:
    """Values, and gradients in inputs and weights, of a weighted sum of all outputs."""
    leaves = [v for v in flat(tuple(inputs)) if v.requires_grad]
    peers = [v for v in flat(tuple(judged)) if v.requires_grad]
    outputs, expected = flat(own(*inputs)), flat(other(*judged))
    total, goal = 0, 0
    for k, (a, b) in enumerate(zip(outputs, expected, strict=True)):
        assert_near(a, b)
        scale = values(*b.shape, seed=k)
        total, goal = total + ruda.sum(a * scale), goal + (b * torch().tensor(scale)).sum()
    own.zero_grad()
    other.zero_grad()
    total.backward()
    goal.backward()
    for a, b in zip(leaves, peers, strict=True):
        assert_near(a.grad, b.grad)
    theirs = dict(other.named_parameters())
    assert [n for n, _ in own.named_parameters()] == list(theirs)
    for name, weight in own.named_parameters():
        assert_near(weight.grad, theirs[name].grad)


def states(name: str, options: dict[str, Any], batch: tuple[int, ...]) -> Any:
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    first = values(count, *batch, options.get("proj_size", 0) or H, seed=4)
    return (first, values(count, *batch, H, seed=5)) if name == "LSTM" else first


def both(value: Any) -> tuple[Any, Any]:
    """Arrays, also in tuples, as leaves of both libraries."""
    if isinstance(value, tuple):
        mine, theirs = zip(*map(both, value), strict=True)
        return mine, theirs
    return ruda.tensor(value, requires_grad=True), torch().tensor(value, requires_grad=True)


@pytest.mark.parametrize("case", STACKS)
@pytest.mark.parametrize("started", [False, True], ids=["zero", "started"])
def test_stacks(case: str, started: bool) -> None:
    name, options = STACKS[case]
    own, other = twins(name, D, H, **options)
    inputs, judged = ([v] for v in both(values(T, N, D)))
    if started:
        batch = (T,) if options.get("batch_first") else (N,)
        first, second = both(states(name, options, batch))
        inputs.append(first)
        judged.append(second)
    assert_twins(own, other, inputs, judged)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_one_sequence_without_a_batch(name: str) -> None:
    options = {"batch_first": True, "num_layers": 2}
    own, other = twins(name, D, H, **options)
    x, y = both(values(T, D))
    first, second = both(states(name, options, ()))
    assert_twins(own, other, [x, first], [y, second])


@pytest.mark.parametrize("lengths", [(6, 4, 1), (2, 6, 3)], ids=["falling", "mixed"])
@pytest.mark.parametrize("case", ["rnn relu", "lstm projected", "gru deep both ways"])
def test_packed(case: str, lengths: tuple[int, ...]) -> None:
    name, options = STACKS[case]
    own, other = twins(name, D, H, **{**options, "batch_first": False})
    x, y = both(values(T, N, D))
    first, second = both(states(name, options, (N,)))
    utilities = torch().nn.utils.rnn
    ordered = lengths == tuple(sorted(lengths, reverse=True))

    def mine(x: Any, h: Any) -> Any:
        out, last = own(nn.pack_padded_sequence(x, lengths, enforce_sorted=ordered), h)
        return out.data, nn.pad_packed_sequence(out, padding_value=7.0)[0], last

    def theirs(y: Any, h: Any) -> Any:
        packed = utilities.pack_padded_sequence(y, lengths, enforce_sorted=ordered)
        out, last = other(packed, h)
        return out.data, utilities.pad_packed_sequence(out, padding_value=7.0)[0], last

    mine.zero_grad, theirs.zero_grad = own.zero_grad, other.zero_grad  # type: ignore[attr-defined]
    mine.named_parameters = own.named_parameters  # type: ignore[attr-defined]
    theirs.named_parameters = other.named_parameters  # type: ignore[attr-defined]
    assert_twins(mine, theirs, [x, first], [y, second])


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(name: str, bias: bool) -> None:
    own, other = twinned(getattr(nn, name)(D, H, bias), getattr(torch().nn, name)(D, H, bias))
    for batch in ((N,), ()):
        start = values(*batch, H, seed=2)
        first = (start, values(*batch, H, seed=3)) if name == "LSTMCell" else start
        x, y = both(values(*batch, D))
        h, k = both(first)
        assert_twins(own, other, [x, h], [y, k])
    assert_near(flat(own(x))[0], flat(other(y))[0])


def test_cells_make_the_layer() -> None:
    layer = nn.LSTM(D, H)
    cell = nn.LSTMCell(D, H)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = ruda.asarray(values(T, N, D)).astype("float32")
    out, (h, c) = layer(x)
    state = None
    for t in range(T):
        state = cell(x[t], state)
        assert_close(state[0], out[t], length=H + D)
    assert_close(state[1], c[0], length=H + D)
    assert_close(h[0], out[-1])


def test_second_order_is_that_of_the_steps() -> None:
    """PyTorch differentiates its own steps twice, unlike its fused layers on the GPU."""
    own, other = twins("GRU", D, H)
    x, y = both(values(3, 2, D))
    ((first, second),) = backward([x], [y], own(x)[0] ** 2, other(y)[0] ** 2)
    backward([x], [y], first * first, second * second)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_computes_in_float32(name: str, dtype: str) -> None:
    layer = getattr(nn, name)(D, H, bidirectional=True).to(dtype)
    wide = copy.deepcopy(layer).to("float32")
    x = ruda.asarray(values(T, N, D)).astype(dtype).requires_grad_()
    y = x.detach().astype("float32").requires_grad_()
    out, expected = layer(x)[0], wide(y)[0]
    assert out.dtype == dtype
    # The input's share of the gates is rounded too, once for each of T steps.
    assert_close(out, expected, rtol=T * ruda.finfo(ruda.tensor(0.0, dtype=dtype).dtype).eps)
    ruda.sum(out).backward()
    ruda.sum(expected).backward()
    assert x.grad.dtype == dtype
    assert_close(x.grad, y.grad, rtol=2 * T * ruda.finfo(x.dtype).eps)


@pytest.fixture
def one_thread() -> Any:
    """PyTorch's threads wait for each other longer than these small products take."""
    threads = torch().get_num_threads()
    torch().set_num_threads(1)
    yield
    torch().set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_character_model_trains_as_in_pytorch() -> None:
    """A hundred steps of an LSTM that reads text, in float64, to eight digits."""
    own, other = twins("LSTM", 8, 16, num_layers=2, bidirectional=False)
    embed, judge_embed = twinned(nn.Embedding(20, 8), torch().nn.Embedding(20, 8))
    head, judge_head = twinned(nn.Linear(16, 20), torch().nn.Linear(16, 20))
    mine = [*own.parameters(), *embed.parameters(), *head.parameters()]
    theirs = [*other.parameters(), *judge_embed.parameters(), *judge_head.parameters()]
    text = np.arange(500) ** 2 % 20
    losses, goals = [], []
    for step in range(100):
        places = (np.arange(4) * 100 + step)[:, None] + np.arange(13)
        piece = text[places].T
        logits = head(own(embed(ruda.asarray(piece[:-1])))[0])
        loss = F.cross_entropy(logits, ruda.asarray(piece[1:]))
        goal_logits = judge_head(other(judge_embed(torch().tensor(piece[:-1])))[0])
        goal = torch().nn.functional.cross_entropy(
            goal_logits.flatten(0, 1), torch().tensor(piece[1:]).flatten()
        )
        for parameter in (*mine, *theirs):
            parameter.grad = None
        loss.backward()
        goal.backward()
        with ruda.no_grad(), torch().no_grad():
            for a, b in zip(mine, theirs, strict=True):
                a.assign(a - a.grad)
                b -= b.grad
        losses.append(loss.item())
        goals.append(goal.item())
    np.testing.assert_allclose(losses, goals, rtol=1e-8)
    assert losses[-1] < losses[0] - 1


def test_compiled_steps() -> None:
    layer = nn.GRU(D, H, num_layers=2, bidirectional=True)

    @ruda.compile
    def step(x: Any) -> Any:
        loss = ruda.sum(layer(x)[0] ** 2)
        loss.backward()
        return loss

    for seed in range(2):
        x = ruda.asarray(values(T, N, D, seed=seed)).astype("float32")
        layer.zero_grad()
        expected = ruda.sum(layer(x)[0] ** 2)
        expected.backward()
        grads = [p.grad.numpy(copy=True) for p in layer.parameters()]
        layer.zero_grad()
        assert_close(step(x), expected.detach(), length=T * N * H)
        for p, g in zip(layer.parameters(), grads, strict=True):
            assert_close(p.grad, g, length=T * N * H)


def test_dropout_acts_between_layers_while_training() -> None:
    layer = nn.LSTM(D, H, num_layers=2, dropout=0.5, generator=ruda.random.Generator(1))
    x = ruda.ones((T, N, D))
    assert layer(x)[0].tolist() != layer(x)[0].tolist()
    layer.eval()
    assert layer(x)[0].tolist() == layer(x)[0].tolist()
    alone = nn.LSTM(D, H, dropout=0.5)
    assert alone(x)[0].tolist() == alone(x)[0].tolist()


def test_modules_copy_pickle_and_show() -> None:
    layer = nn.LSTM(D, H, 2, bidirectional=True, proj_size=3)
    x = ruda.ones((T, N, D))
    expected = layer(x)[0].tolist()
    assert copy.deepcopy(layer)(x)[0].tolist() == expected
    assert pickle.loads(pickle.dumps(layer))(x)[0].tolist() == expected
    assert "4, 5, num_layers=2, bidirectional=True, proj_size=3" in repr(layer)
    assert "weight_hr_l1_reverse" in layer.state_dict()


def test_packing_is_that_of_pytorch() -> None:
    utilities = torch().nn.utils.rnn
    pieces = [values(n, 2, seed=n) for n in (2, 4, 1)]
    mine = nn.pack_sequence([ruda.asarray(p) for p in pieces], enforce_sorted=False)
    theirs = utilities.pack_sequence([torch().tensor(p) for p in pieces], enforce_sorted=False)
    assert_near(mine.data, theirs.data)
    assert mine.batch_sizes == tuple(theirs.batch_sizes.tolist())
    assert mine.order == tuple(theirs.sorted_indices.tolist())
    assert mine.lengths == (2, 4, 1)
    for piece, again in zip(pieces, nn.unpack_sequence(mine), strict=True):
        assert_near(again, piece)
    padded, lengths = nn.pad_packed_sequence(mine, True, -1.0, 6)
    expected, _ = utilities.pad_packed_sequence(theirs, True, -1.0, 6)
    assert_near(padded, expected)
    assert lengths.tolist() == [2, 4, 1]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: nn.RNN(D, H, nonlinearity="exp"), ArgumentError, "nonlinearity"),
        (lambda: nn.LSTM(D, H, proj_size=5), ArgumentError, "proj_size"),
        (lambda: nn.GRU(D, 0), ArgumentError, "sizes are too small"),
        (lambda: nn.GRU(D, H, dropout=1.5), ArgumentError, "dropout"),
        (lambda: nn.GRU(D, H)(ruda.ones((T, N, D + 1))), ShapeError, "does not fit the weight"),
        (lambda: nn.GRU(D, H)(ruda.ones(D)), ShapeError, "GRU: wrong rank"),
        (lambda: nn.GRU(D, H)(ruda.ones((0, N, D))), ShapeError, "without steps"),
        (lambda: nn.GRU(D, H)(ruda.ones((T, N, D)).astype("float64")), DTypeError, "astype"),
        (
            lambda: nn.GRU(D, H)(ruda.ones((T, N, D)), ruda.zeros((2, N, H))),
            ShapeError,
            "first state does not fit",
        ),
        (lambda: nn.RNNCell(D, H)(ruda.ones((1, 1, D))), ShapeError, "RNNCell: wrong rank"),
        (lambda: nn.pack_padded_sequence(ruda.ones((4, 2)), [1, 2]), ArgumentError, "do not fall"),
        (lambda: nn.pack_padded_sequence(ruda.ones((4, 2)), [5, 2]), ArgumentError, "1 to 4"),
        (lambda: nn.pack_padded_sequence(ruda.ones((4, 2)), [4]), ShapeError, "lengths do not"),
        (lambda: nn.pad_sequence([]), ArgumentError, "no sequences"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
