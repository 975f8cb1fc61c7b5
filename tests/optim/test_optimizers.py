"""Groups, rates, state, masters, saving and errors of optimizers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.ops.table import TABLE
from ruda.tensor import mutation


def leaf(*values: float, dtype: str = "float64") -> ruda.Tensor:
    return ruda.tensor(list(values), dtype=dtype, requires_grad=True)


def square_step(weight: ruda.Tensor, opt: optim.Optimizer) -> None:
    ruda.sum(weight * weight).backward()
    opt.step()
    opt.zero_grad()


def test_a_parameter_without_gradient_stays() -> None:
    used, unused = leaf(1.0), leaf(2.0)
    opt = optim.AdamW([used, unused], lr=0.1)
    square_step(used, opt)
    assert unused.tolist() == [2.0]
    assert opt.state[unused]["step"].item() == 0
    assert opt.state[used]["step"].item() == 1


def test_groups_have_settings_of_their_own() -> None:
    a, b = leaf(1.0), leaf(1.0)
    opt = optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.25)
    (ruda.sum(a) + ruda.sum(b)).backward()
    opt.step()
    assert (a.tolist(), b.tolist()) == ([0.5], [0.75])
    opt.lr = 0.125
    assert [group["lr"].item() for group in opt.param_groups] == [0.125, 0.125]


def test_the_rate_stays_one_tensor() -> None:
    opt = optim.SGD([leaf(1.0)], lr=0.1)
    rate = opt.lr
    opt.param_groups[0]["lr"] = 0.3
    opt.param_groups[0].update(lr=0.2)
    assert opt.lr is rate
    assert rate.item() == 0.2


def test_settings_count_the_version_and_rates_do_not() -> None:
    opt = optim.SGD([leaf(1.0)], lr=0.1)
    group = opt.param_groups[0]
    before = group._ruda_version
    group["lr"] = 0.3
    assert group._ruda_version == before
    group["weight_decay"] = 0.5
    assert group._ruda_version > before


def test_the_first_step_is_not_dampened() -> None:
    torch = pytest.importorskip("torch")
    own = leaf(1.0, -2.0)
    other = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    mine = optim.SGD([own], lr=0.1, momentum=0.9, dampening=0.5)
    theirs = torch.optim.SGD([other], lr=0.1, momentum=0.9, dampening=0.5)
    for _ in range(4):
        square_step(own, mine)
        (other * other).sum().backward()
        theirs.step()
        theirs.zero_grad()
    np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-14)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_weight_decay_and_maximize_are_those_of_pytorch(name: str, maximize: bool) -> None:
    torch = pytest.importorskip("torch")
    own = leaf(1.0, -2.0)
    other = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    settings = {"lr": 0.1, "weight_decay": 0.3, "maximize": maximize}
    mine = getattr(optim, name)([own], **settings)
    theirs = getattr(torch.optim, name)([other], **settings)
    for _ in range(4):
        square_step(own, mine)
        (other * other).sum().backward()
        theirs.step()
        theirs.zero_grad()
    np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_masters_keep_what_half_parameters_round_away(dtype: str) -> None:
    # A step of 1e-4 is below half a unit in the last place of 1.0 in both dtypes.
    with_master, without = leaf(1.0, dtype=dtype), leaf(1.0, dtype=dtype)
    opt = optim.SGD([with_master], lr=1e-4)
    bare = optim.SGD([without], lr=1e-4, master=False)
    for _ in range(200):
        for weight, own in ((with_master, opt), (without, bare)):
            ruda.sum(weight).backward()
            own.step()
            own.zero_grad()
    assert without.item() == 1.0
    assert with_master.item() == pytest.approx(0.98, abs=2**-8)
    assert opt.state[with_master]["master"].dtype is ruda.float32
    assert opt.state[with_master]["master"].item() == pytest.approx(0.98, abs=1e-5)
    with ruda.no_grad():
        with_master.assign(3.0)
    opt.sync_masters()
    assert opt.state[with_master]["master"].item() == 3.0


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_step_writes_into_the_memory_that_is_there(
    decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = leaf(1.0, 2.0)
    opt = optim.AdamW([weight], weight_decay=decay)
    # Nothing is copied into place: neither values nor the step count.
    monkeypatch.setattr(mutation, "assign", None)
    tensors = [weight, *opt.state[weight].values()]
    handles = [t.handle for t in tensors]
    arrays = [t.handle.array for t in tensors]
    versions = [h.version for h in handles]
    square_step(weight, opt)
    assert [t.handle for t in tensors] == handles
    assert all(a is h.array for a, h in zip(arrays, handles, strict=True))
    assert [h.version for h in handles] == [v + 1 for v in versions]


def test_a_step_after_the_forward_pass_makes_its_backward_fail() -> None:
    weight = leaf(1.0)
    opt = optim.SGD([weight], lr=0.1)
    loss = ruda.sum(weight * weight)
    ruda.sum(weight).backward()
    opt.step()
    with pytest.raises(ruda.VersionError, match="changed in place"):
        loss.backward()


def test_a_strided_parameter_is_updated_where_it_is() -> None:
    base = ruda.ones((2, 3), dtype="float64")
    weight = base.mT.detach().requires_grad_()
    opt = optim.AdamW([weight], lr=0.1, weight_decay=0.0)
    square_step(weight, opt)
    np.testing.assert_allclose(base.numpy(), 0.9, rtol=1e-6)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("name", "alike", "settings"),
    [
        ("adamw_step", 4, (0.9, 0.999, 1e-8)),
        ("amsgrad_step", 5, (0.9, 0.999, 1e-8)),
        ("adan_step", 6, (0.98, 0.92, 0.99, 1e-8)),
        ("nadam_step", 4, (0.7, 0.9, 0.999, 1e-8, 4e-3)),
        ("radam_step", 4, (0.9, 0.999, 1e-8)),
        ("radam_step", 4, (0.9, 0.6, 1e-8)),
        ("rmsprop_step", 3, (0.9, 1e-8)),
        ("adagrad_step", 3, (0.1, 1e-10)),
        ("adadelta_step", 4, (0.9, 1e-6)),
        ("lion_step", 3, (0.9, 0.99)),
    ],
)
def test_a_row_and_its_body_agree_in_blocks_of_any_length(
    name: str, alike: int, settings: tuple[float, ...], first: bool
) -> None:
    rng = np.random.default_rng(0)
    alike_values = [ruda.asarray(rng.uniform(0.1, 1.0, 70_001)) for _ in range(alike)]
    count = [] if name == "lion_step" else [ruda.asarray(0 if first else 300, dtype="int64")]
    flags = (first,) if name == "lion_step" else (True, first)
    values = (*alike_values, *count, 0.1, *settings, 0.01, *flags)
    op = TABLE[name]
    for got, expected in zip(op.call(*values), op.body(*values), strict=True):
        # Parameters near 1 may end near 0: then the roundings are those of 1.
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-13, atol=2**-50)


def test_the_state_goes_round_and_on() -> None:
    weight = leaf(1.0, 2.0)
    opt = optim.AdamW([{"params": [weight], "betas": (0.8, 0.9)}], lr=0.1)
    square_step(weight, opt)
    saved = pickle.loads(pickle.dumps(opt.state_dict()))
    again = ruda.tensor(weight, requires_grad=True)
    other = optim.AdamW([again])
    other.load_state_dict(saved)
    assert other.param_groups[0]["betas"] == (0.8, 0.9)
    assert other.lr.item() == 0.1
    square_step(weight, opt)
    square_step(again, other)
    assert again.tolist() == weight.tolist()


@pytest.mark.parametrize(
    ("name", "settings"), [("AdamW", {}), ("SGD", {"momentum": 0.9}), ("SGD", {})]
)
def test_the_state_of_pytorch_loads(name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    other = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    theirs = getattr(torch.optim, name)([other], lr=0.1, **settings)
    for _ in range(3):
        (other * other).sum().backward()
        theirs.step()
        theirs.zero_grad()
    own = leaf(*other.tolist())
    mine = getattr(optim, name)([own], **settings)
    mine.load_state_dict(theirs.state_dict())
    for _ in range(2):
        square_step(own, mine)
        (other * other).sum().backward()
        theirs.step()
        theirs.zero_grad()
    np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-13)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    weight, other = leaf(1.0, 2.0), leaf(1.0)
    opt, small = optim.AdamW([weight]), optim.AdamW([other])
    square_step(other, small)
    with pytest.raises(ShapeError, match=r"exp_avg of parameter 0 does not fit. Got \(1,\)"):
        opt.load_state_dict(small.state_dict())
    with pytest.raises(optim.OptimizerStateError, match="the groups do not match"):
        opt.load_state_dict(optim.AdamW([leaf(1.0), leaf(2.0)]).state_dict())
    buffers = optim.SGD([weight], momentum=0.9)
    with pytest.raises(optim.OptimizerStateError, match=r"exp_avg is missing. Got parameter 0"):
        opt.load_state_dict(buffers.state_dict())
    assert opt.state[weight]["step"].item() == 0


def test_model_and_optimizer_copy_together() -> None:
    model = nn.Linear(2, 2)
    opt = optim.AdamW(model.parameters())
    twin, twin_opt = copy.deepcopy((model, opt))
    for m, o in ((model, opt), (twin, twin_opt)):
        ruda.sum(m(ruda.ones((1, 2)))).backward()
        o.step()
    assert twin.weight is not model.weight
    assert twin.weight.tolist() == model.weight.tolist()
    assert set(twin_opt.state) == set(twin.parameters())


def test_the_text_shows_the_settings() -> None:
    text = repr(optim.SGD([leaf(1.0, 2.0)], lr=0.5))
    assert "2 parameters: lr=0.5, momentum=0.0" in text


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: optim.SGD(nn.Linear(2, 1)),
            DTypeError,
            r"Got Linear\..*Try module\.parameters\(\)",
        ),
        (lambda: optim.SGD(leaf(1.0)), DTypeError, r"Got RudaTensor\..*Try .*\[tensor\]"),
        (lambda: optim.SGD([]), ArgumentError, "SGD: there are no parameters"),
        (lambda: optim.SGD([np.ones(3)]), DTypeError, "a parameter is not a tensor. Got ndarray"),
        (lambda: optim.SGD([leaf(1.0) * 2]), ArgumentError, "a parameter is not a leaf"),
        (lambda: optim.SGD([ruda.arange(3)]), DTypeError, "SGD: not a parameter"),
        (lambda: optim.SGD([leaf(1.0)] * 2), ArgumentError, "a parameter is given twice"),
        (
            lambda: optim.SGD([{"params": [leaf(1.0)], "rate": 1}]),
            ArgumentError,
            r"not a parameter group. Got unknown \['rate'\]",
        ),
        (lambda: optim.AdamW([leaf(1.0)], lr=-1e-3), ArgumentError, "AdamW: lr out of range"),
        (lambda: optim.SGD([leaf(1.0)], momentum=-1), ArgumentError, "momentum out of range"),
        (lambda: optim.SGD([leaf(1.0)], nesterov=True), ArgumentError, "nesterov has no meaning"),
        (lambda: optim.AdamW([leaf(1.0)], betas=(0.9, 1.0)), ArgumentError, "betas out of range"),
        (lambda: optim.AdamW([leaf(1.0)], eps=-1e-8), ArgumentError, "eps out of range"),
    ],
)
def test_errors(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()
