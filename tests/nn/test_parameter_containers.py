"""Lists and dicts of parameters: what they hold is found, replaced, moved, copied and saved."""

from __future__ import annotations

import copy

import pytest

import ruda
from ruda import nn
from ruda.core.errors import DTypeError, IndexRangeError


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(ruda.full((n,), 1.0 * n) for n in (1, 2))
        self.gains = nn.ParameterDict({"low": ruda.ones(2), "high": nn.Parameter(ruda.zeros(2))})


def test_parameters_are_found_and_saved() -> None:
    model = Mixture()
    names = ["scales.0", "scales.1", "gains.low", "gains.high"]
    assert [name for name, _ in model.named_parameters()] == names
    assert all(p.requires_grad for p in model.parameters())
    other = Mixture()
    with ruda.no_grad():
        model.gains["high"].assign(5.0)
    other.load_state_dict(model.state_dict())
    assert other.gains["high"].tolist() == [5.0, 5.0]
    assert [p.tolist() for p in copy.deepcopy(model).scales] == [[1.0], [2.0, 2.0]]
    assert model.to("float64").scales[0].dtype == "float64"


def test_a_list_is_a_sequence() -> None:
    scales = Mixture().scales
    scales.append(ruda.ones(3)).extend([ruda.ones(4)])
    assert [p.shape for p in scales] == [(1,), (2,), (3,), (4,)]
    scales[-1] = ruda.ones(5)
    assert scales[3].shape == (5,) and isinstance(scales[3], nn.Parameter)
    with pytest.raises(IndexRangeError, match=r"no such parameter. Got 4. Expected -4 to 3"):
        scales[4]


def test_a_dict_is_a_mapping() -> None:
    gains = Mixture().gains
    gains.update({"mid": ruda.ones(1)})
    assert list(gains) == list(gains.keys()) == ["low", "high", "mid"]
    assert [p.shape for p in gains.values()] == [(2,), (2,), (1,)]
    del gains["low"]
    assert "low" not in gains and len(gains) == 2
    assert dict(gains.items())["mid"] is gains["mid"]
    with pytest.raises(KeyError):
        del gains["low"]
    with pytest.raises(DTypeError, match=r"^Parameter: not a tensor"):
        gains["text"] = "x"
