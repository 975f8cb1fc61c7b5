"""Which strategy runs, and why not another, in the words of the error that asking for it raises."""

from __future__ import annotations

import pytest

import ruda
import ruda.nn.functional as F

X = ruda.ones((1, 2, 3, 4))


def test_attention_says_what_each_strategy_lacks() -> None:
    told = ruda.explain("attention", X, X, X)
    assert told.chosen == "reference"
    assert set(told.strategies) == {"composite", "vendor", "flash", "flash_unit"}
    for name, answer in told.strategies.items():
        if answer is True:
            assert F.attention(X, X, X, strategy=name).shape == X.shape
            assert ruda.explain("attention", X, X, X, strategy=name).chosen == name
        else:
            with pytest.raises(ruda.StrategyError, match=str(answer)):
                F.attention(X, X, X, strategy=name)
            with pytest.raises(ruda.StrategyError, match=str(answer)):
                ruda.explain("attention", X, X, X, strategy=name)


def test_operands_that_do_not_fit_raise_as_the_call_does() -> None:
    with pytest.raises(ruda.ShapeError, match=r"^attention: depths do not fit"):
        ruda.explain("attention", X, X[..., :2], X)


def test_convolution_is_explained_by_name_too() -> None:
    weight = ruda.ones((5, 2, 1, 1))
    assert ruda.explain("conv", X, weight) == F.explain_conv(X, weight)
    assert "vendor: no vendor library" in str(ruda.explain("conv", X, weight))


def test_an_operator_without_strategies_is_told() -> None:
    with pytest.raises(ruda.ArgumentError, match=r"Got 'add'. Expected one of attention, conv"):
        ruda.explain("add", X, X)
