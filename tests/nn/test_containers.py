"""Containers behave as the sequence or mapping that they are."""

from __future__ import annotations

import pytest

import ruda
from ruda import nn
from ruda.core.errors import DTypeError, IndexRangeError


def layers(count: int) -> list[nn.Module]:
    return [nn.Linear(i + 1, i + 2) for i in range(count)]


def test_a_sequential_is_a_sequence() -> None:
    parts = layers(4)
    model = nn.Sequential(*parts)
    assert model(ruda.ones((3, 1))).shape == (3, 5)
    assert list(model) == parts
    assert (model[0], model[-1], len(model)) == (parts[0], parts[3], 4)
    assert isinstance(model[1:3], nn.Sequential)
    assert list(model[1:3]) == parts[1:3]
    del model[1]
    assert list(model) == [parts[0], *parts[2:]]
    assert [name for name, _ in model.named_modules()] == ["", "0", "1", "2"]
    model.insert(1, parts[1]).append(nn.ReLU())
    assert list(model)[:4] == parts
    assert list(nn.Sequential(*parts[:1]).extend(parts[1:])) == parts
    model[-1] = nn.Tanh()
    assert isinstance(model[4], nn.Tanh)
    del model[1:]
    assert list(model) == parts[:1]


def test_what_is_replaced_keeps_its_place() -> None:
    first, second, third = layers(3)
    model = nn.Sequential(first, second, third)
    step = ruda.compile(lambda x: model(x))
    assert step(ruda.ones((3, 1))).shape == (3, 4)
    model[0] = nn.Linear(1, 2)
    model[1] = nn.Linear(2, 3, bias=False)
    assert model(ruda.ones((3, 1))).shape == step(ruda.ones((3, 1))).shape == (3, 4)
    names = ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias"]
    assert [name for name, _ in model.named_parameters()] == names
    third.weight = nn.Parameter(ruda.zeros((4, 3)))
    assert [name for name, _ in third.named_parameters()] == ["weight", "bias"]
    parts = nn.ModuleList([first, second])
    parts[0] = third
    assert list(parts) == [third, second]


def test_a_sequential_takes_names() -> None:
    model = nn.Sequential({"first": nn.Linear(2, 3), "last": nn.Linear(3, 1)})
    assert next(iter(model.state_dict())) == "first.weight"
    assert model.last is model[1]


def test_a_list_holds_modules_of_a_generator() -> None:
    parts = nn.ModuleList(part for part in layers(3))
    assert len(list(parts.parameters())) == 6
    assert isinstance(parts[:2], nn.ModuleList)
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        parts(ruda.ones(1))


def test_a_dict_is_a_mapping() -> None:
    parts = nn.ModuleDict({"a": nn.Linear(1, 1)})
    parts["b"] = nn.Linear(2, 2)
    parts.update({"keys": nn.Linear(3, 3)})
    assert list(parts) == list(parts.keys()) == ["a", "b", "keys"]
    assert parts["keys"].in_features == 3
    del parts["a"]
    assert "a" not in parts and len(parts) == 2
    assert dict(parts.items()) == {"b": parts["b"], "keys": parts["keys"]}
    assert list(parts.values()) == [parts["b"], parts["keys"]]
    with pytest.raises(KeyError):
        del parts["a"]


def test_errors() -> None:
    with pytest.raises(DTypeError, match=r"Sequential: holds modules only. Got function"):
        nn.Sequential(nn.ReLU(), lambda x: x)
    with pytest.raises(DTypeError, match=r"ModuleDict: holds modules only. Got int"):
        nn.ModuleDict({"a": 1})
    with pytest.raises(
        IndexRangeError, match=r"Sequential: no such module. Got 2. Expected -1 to 0"
    ):
        nn.Sequential(nn.ReLU())[2]
