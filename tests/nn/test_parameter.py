"""The mark of parameters, and copies of tensors that are leaves."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

import ruda
from ruda import nn
from ruda.core.errors import GradientError
from ruda.tensor import marks


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int32"])
def test_tensors_go_round(dtype: str) -> None:
    x = ruda.tensor([[1, 2], [3, 4]], dtype=dtype)
    if dtype == "float64":
        x.requires_grad_()
        ruda.sum(x * x).backward()
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (y.dtype, y.tolist(), y.requires_grad) == (x.dtype, x.tolist(), x.requires_grad)
        with ruda.no_grad():
            y.assign(0)
        assert x.tolist() == [[1, 2], [3, 4]]
    assert pickle.loads(pickle.dumps(x.detach().mT)).tolist() == [[1, 3], [2, 4]]
    if dtype == "float64":
        assert copy.deepcopy(x).grad.tolist() == [[2, 4], [6, 8]]


def test_a_tensor_in_two_places_is_copied_once() -> None:
    x = ruda.ones(2)
    a, b = copy.deepcopy([x, x])
    assert a is b
    a, b = pickle.loads(pickle.dumps([x, x]))
    assert a is b


def test_results_cannot_be_copied_deeply() -> None:
    y = ruda.tensor([1.0], requires_grad=True) * 2
    with pytest.raises(GradientError, match="only leaves"):
        copy.deepcopy(y)
    with pytest.raises(GradientError, match="only leaves"):
        pickle.dumps(y)


def test_a_parameter_is_a_leaf_that_shares_memory() -> None:
    data = ruda.zeros(2)
    weight = nn.Parameter(data)
    with ruda.no_grad():
        data.assign(3.0)
    assert weight.tolist() == [3.0, 3.0]
    assert weight.requires_grad and weight.is_leaf
    assert not nn.Parameter(ruda.zeros(2), requires_grad=False).requires_grad
    assert nn.Parameter(weight * 2).is_leaf
    assert not isinstance(weight * 2, nn.Parameter)
    assert not isinstance(3, nn.Parameter)


def test_the_mark_dies_with_the_tensor() -> None:
    gc.collect()
    before = len(marks._marked)
    weight = nn.Parameter(ruda.zeros(2))
    assert len(marks._marked) == before + 1
    del weight
    assert len(marks._marked) == before


@pytest.mark.parametrize("trained", [True, False])
def test_copies_of_a_parameter_are_parameters(trained: bool) -> None:
    weight = nn.Parameter(ruda.ones(2), trained)
    for other in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight)), copy.copy(weight)):
        assert isinstance(other, nn.Parameter)
        assert other.requires_grad == trained
    assert not isinstance(copy.deepcopy(ruda.ones(2)), nn.Parameter)
