"""What every optimizer owes: saving, loading, masters, flags, idle parameters, errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import optim
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from tests.optim.test_optimizers import leaf

MAKERS: dict[str, Any] = {
    "SGD": lambda p, **s: optim.SGD(p, momentum=0.9, **s),
    "Adam": lambda p, **s: optim.Adam(p, **s),
    "Adam amsgrad": lambda p, **s: optim.Adam(p, amsgrad=True, **s),
    "AdamW cautious": lambda p, **s: optim.AdamW(p, cautious=True, **s),
    "RMSprop": lambda p, **s: optim.RMSprop(p, momentum=0.9, centered=True, **s),
    "Adagrad": lambda p, **s: optim.Adagrad(p, initial_accumulator_value=0.1, **s),
    "Adadelta": lambda p, **s: optim.Adadelta(p, **s),
    "NAdam": lambda p, **s: optim.NAdam(p, **s),
    "RAdam": lambda p, **s: optim.RAdam(p, **s),
    "Adan": lambda p, **s: optim.Adan(p, **s),
    "Lion": lambda p, **s: optim.Lion(p, **s),
    "Muon": lambda p, **s: optim.Muon(p, **s),
}
TORCH = [
    ("Adam", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
    ("NAdam", {}),
    ("RAdam", {}),
]


def matrix(dtype: str = "float64") -> ruda.Tensor:
    return ruda.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=dtype, requires_grad=True)


def step(weight: ruda.Tensor, opt: optim.Optimizer, **how: Any) -> None:
    opt.zero_grad()
    ruda.sum(weight * weight * weight).backward()
    opt.step(**how)


@pytest.mark.parametrize("name", MAKERS)
def test_the_state_goes_round_and_on(name: str) -> None:
    weight = matrix()
    opt = MAKERS[name]([weight], lr=0.01)
    for _ in range(3):
        step(weight, opt)
    saved = pickle.loads(pickle.dumps(opt.state_dict()))
    again = ruda.tensor(weight, requires_grad=True)
    other = MAKERS[name]([again])
    other.load_state_dict(saved)
    step(weight, opt)
    step(again, other)
    assert again.tolist() == weight.tolist()
    # A state without steps puts everything back to the beginning.
    other.load_state_dict({**saved, "state": {}})
    fresh = MAKERS[name]([ruda.tensor(again, requires_grad=True)])
    beginning = next(iter(fresh.state.values()))
    for key, value in other.state[again].items():
        assert value.tolist() == beginning[key].tolist(), key


@pytest.mark.parametrize(("name", "settings"), TORCH)
def test_the_state_of_pytorch_loads(name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        other = torch.tensor([1.0, -2.0], requires_grad=True)
        theirs = getattr(torch.optim, name)([other], lr=0.1, **settings)
        own = None
        for _ in range(9):
            if theirs.state and own is None:
                own = leaf(*other.tolist())
                mine = getattr(optim, name)([own], **settings)
                mine.load_state_dict(theirs.state_dict())
            theirs.zero_grad()
            (other**3).sum().backward()
            theirs.step()
            if own is not None:
                step(own, mine)
    finally:
        torch.set_default_dtype(before)
    np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_a_flag_undoes_the_whole_step(name: str) -> None:
    weight = matrix("float16")
    opt = MAKERS[name]([weight])
    step(weight, opt)
    tensors = [weight, *opt.state[weight].values()]
    before = [t.numpy(copy=True) for t in tensors]
    weight.grad.assign(np.inf)
    opt.step(where=ruda.asarray(False))
    for t, old in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(t.numpy(), old)
    step(weight, opt, where=ruda.asarray(True))
    changed = [not np.array_equal(t.numpy(), old) for t, old in zip(tensors, before, strict=True)]
    assert any(changed[1:])


@pytest.mark.parametrize("name", MAKERS)
def test_a_scale_is_a_smaller_gradient(name: str) -> None:
    one, two = matrix(), matrix()
    opt, other = MAKERS[name]([one]), MAKERS[name]([two])
    for _ in range(2):
        for weight, own in ((one, opt), (two, other)):
            own.zero_grad()
            ruda.sum(weight * weight * weight).backward()
        two.grad.assign(two.grad * 8.0)
        opt.step()
        other.step(scale=ruda.asarray(0.125))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", MAKERS)
def test_masters_follow_a_float32_run(name: str, dtype: str) -> None:
    half, whole = matrix(dtype), matrix("float32")
    opt, other = MAKERS[name]([half], lr=1e-4), MAKERS[name]([whole], lr=1e-4)
    grad = ruda.asarray([[1.0, -0.5], [0.25, 2.0]])
    for _ in range(5):
        half.grad, whole.grad = grad.astype(dtype), grad
        opt.step()
        other.step()
    # The gradients are exact in all three dtypes, so the masters are bit for bit the same.
    assert opt.state[half]["master"].tolist() == whole.tolist()
    assert half.tolist() == whole.astype(dtype).tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_without_master_half_parameters_compute_in_float32(name: str) -> None:
    half, whole = matrix("bfloat16"), matrix("float32")
    opt, other = MAKERS[name]([half], lr=1e-2, master=False), MAKERS[name]([whole], lr=1e-2)
    grad = ruda.asarray([[1.0, -0.5], [0.25, 2.0]])
    half.grad, whole.grad = grad.astype("bfloat16"), grad
    opt.step()
    other.step()
    assert "master" not in opt.state[half]
    assert half.tolist() == whole.astype("bfloat16").tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_a_parameter_without_gradient_stays(name: str) -> None:
    used, idle = matrix(), matrix()
    opt = MAKERS[name]([used, idle])
    before = {k: v.tolist() for k, v in opt.state[idle].items()}
    step(used, opt)
    assert idle.tolist() == matrix().tolist()
    assert {k: v.tolist() for k, v in opt.state[idle].items()} == before
    assert used.tolist() != idle.tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_a_group_has_its_own_rate_and_decay(name: str) -> None:
    one, two, alone = matrix(), matrix(), matrix()
    groups = [{"params": one}, {"params": two, "lr": 0.5}]
    opt, other = MAKERS[name](groups, lr=0.0), MAKERS[name]([alone], lr=0.5)
    for weight, own in ((one, opt), (alone, other)):
        own.zero_grad()
        ruda.sum(weight * weight * weight).backward()
    two.grad = alone.grad
    opt.step()
    other.step()
    assert two.tolist() == alone.tolist()
    assert one.tolist() == matrix().tolist()


def test_lbfgs_goes_on_where_it_was() -> None:
    def make(weight: ruda.Tensor) -> tuple[Any, Any]:
        opt = optim.LBFGS([weight], max_iter=3, line_search_fn="strong_wolfe")

        def closure() -> ruda.Tensor:
            opt.zero_grad()
            loss = ruda.sum((weight * weight - ruda.asarray([2.0, 5.0], dtype="float64")) ** 2)
            loss.backward()
            return loss

        return opt, closure

    weight = leaf(1.0, 1.0)
    opt, closure = make(weight)
    first = opt.step(closure).item()
    saved = pickle.loads(pickle.dumps(opt.state_dict()))
    again = ruda.tensor(weight, requires_grad=True)
    other, their_closure = make(again)
    other.load_state_dict(saved)
    for _ in range(3):
        assert other.step(their_closure).item() == opt.step(closure).item()
    assert again.tolist() == weight.tolist()
    assert closure().item() < first * 1e-6
    with pytest.raises(optim.OptimizerStateError, match="old_dirs is missing"):
        other.load_state_dict({**saved, "state": {0: {"n_iter": 1, "H_diag": 1, "d": 0}}})


def test_lbfgs_loads_the_state_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    other = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
    theirs = torch.optim.LBFGS([other], max_iter=3, line_search_fn="strong_wolfe")

    def their_closure() -> Any:
        theirs.zero_grad()
        loss = ((other * other - torch.tensor([2.0, 5.0])) ** 2).sum()
        loss.backward()
        return loss

    theirs.step(their_closure)
    own = leaf(*other.tolist())
    mine = optim.LBFGS([own])
    mine.load_state_dict(theirs.state_dict())

    def closure() -> ruda.Tensor:
        mine.zero_grad()
        loss = ruda.sum((own * own - ruda.asarray([2.0, 5.0], dtype="float64")) ** 2)
        loss.backward()
        return loss

    mine.step(closure)
    theirs.step(their_closure)
    np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: optim.RMSprop([leaf(1.0)], alpha=-1), ArgumentError, "RMSprop: alpha out of"),
        (lambda: optim.Adagrad([leaf(1.0)], lr_decay=-1), ArgumentError, "lr_decay out of range"),
        (lambda: optim.Adadelta([leaf(1.0)], rho=1.5), ArgumentError, "Adadelta: rho out of range"),
        (lambda: optim.NAdam([leaf(1.0)], momentum_decay=-1), ArgumentError, "momentum_decay out"),
        (lambda: optim.RAdam([leaf(1.0)], betas=(1.0, 0.9)), ArgumentError, "betas out of range"),
        (lambda: optim.Adan([leaf(1.0)], betas=(0.9, 0.9)), ArgumentError, "Expected 3 of 0 <="),
        (lambda: optim.Lion([leaf(1.0)], weight_decay=-1), ArgumentError, "weight_decay out"),
        (lambda: optim.Muon([leaf(1.0)]), ShapeError, "Muon: a parameter is not a matrix"),
        (lambda: optim.Muon([matrix()], ns_steps=0), ArgumentError, "ns_steps out of range"),
        (lambda: optim.Muon([matrix()], adjust_lr_fn="x"), ArgumentError, "adjust_lr_fn out of"),
        (lambda: optim.LBFGS([leaf(1.0)], line_search_fn="x"), ArgumentError, "line_search_fn out"),
        (lambda: optim.LBFGS([leaf(1.0, dtype="float16")]), DTypeError, "is too coarse for a line"),
        (
            lambda: optim.LBFGS([{"params": leaf(1.0)}, {"params": leaf(1.0)}]),
            ArgumentError,
            "LBFGS: there is one group only",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()
