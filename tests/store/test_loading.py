"""Loading into a model: names, shapes and dtypes are reported, and nothing is half done."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, StoreError, VersionError
from ruda.store import LoadError, LoadReport, load_into, save_arrays, save_npz, save_shards
from tests.store.mutations import COUNTS, mutated


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def arrays(value: float = 7.0, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {name: np.full(t.shape, value, dtype) for name, t in model().state_dict().items()}


def values(module: nn.Module) -> dict[str, list]:
    return {name: value.tolist() for name, value in module.state_dict().items()}


def is_filled(module: nn.Module, value: float = 7.0) -> bool:
    return all((t.numpy() == value).all() for t in module.state_dict().values())


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".pt", ""])
def test_every_format(tmp_path, ending):
    path, target = tmp_path / f"model{ending}", model()
    ruda.save(path, {name: ruda.asarray(array) for name, array in arrays().items()})
    before = list(target.parameters())
    report = load_into(target, path)
    assert report.is_complete and report.applied == tuple(arrays())
    assert str(report) == "4 applied"
    assert is_filled(target)
    assert all(p is q for p, q in zip(before, target.parameters()))


def test_mappings_of_tensors_and_arrays():
    target = model()
    source = arrays() | {"0.weight": ruda.full((4, 3), 7.0)}
    load_into(target, source)
    assert is_filled(target)
    with pytest.raises(StoreError, match=r"no tensor for tensor '0\.bias'.*Got list"):
        load_into(target, source | {"0.bias": [1.0]})


def test_missing_and_unused_names_with_the_nearest():
    target, source = model(), arrays()
    source["0.weigth"] = source.pop("0.weight")
    before = values(target)
    with pytest.raises(LoadError, match=r"Try strict=False") as caught:
        load_into(target, source)
    report = caught.value.report
    assert (report.missing, report.unused) == (("0.weight",), ("0.weigth",))
    assert report.suggestions == {"0.weight": "0.weigth", "0.weigth": "0.weight"}
    assert "0.weight (near 0.weigth)" in str(caught.value)
    assert values(target) == before
    assert pickle.loads(pickle.dumps(caught.value)).report == report
    assert load_into(target, source, strict=False) == report
    assert values(target)["0.weight"] == before["0.weight"]
    assert values(target)["0.bias"] == [7.0] * 4


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda name: f"module.{name}", ("^module\\.", "")),
        (lambda name: name.removeprefix("net."), ("^", "net.")),
    ],
    ids=["added", "lacking"],
)
def test_a_common_prefix_is_found_and_the_rule_works(change, rule):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x):
            return self.net(x)

    target = Net()
    source = {change(f"net.{name}"): array for name, array in arrays().items()}
    with pytest.raises(LoadError) as caught:
        load_into(target, source)
    assert caught.value.report.remap == rule
    assert f"try remap=[({rule[0]!r}, {rule[1]!r})]" in str(caught.value)
    assert load_into(target, source, remap=[rule]).is_complete
    assert is_filled(target)


def test_wrong_shapes_and_dtypes_change_nothing_even_unless_strict():
    target = model()
    before = values(target)
    source = arrays()
    source["0.weight"] = source["0.weight"].T
    source["2.weight"] = source["2.weight"].astype(np.int32)
    for strict in (True, False):
        with pytest.raises(LoadError) as caught:
            load_into(target, source, strict=strict)
        report = caught.value.report
        assert report.applied == ("0.bias", "2.bias")
        assert report.shape_errors["0.weight"].startswith("[3, 4] for [4, 3], as many elements")
        assert report.dtype_errors == {"2.weight": "int32 for float32"}
        assert "1 of another shape" in str(report) and "1 of another dtype" in str(report)
        assert values(target) == before


def test_filters_take_names_out_of_both_sides():
    target = model()
    before = values(target)
    report = load_into(target, arrays(), filter=r"^0\.")
    assert report == LoadReport(applied=("0.weight", "0.bias"))
    assert values(target)["2.bias"] == before["2.bias"]
    source = arrays() | {"2.weight": np.zeros(3)}
    assert load_into(target, source, filter=lambda name: not name.endswith("2.weight")).is_complete


def test_rules_apply_in_order_and_may_not_collide():
    target = model()
    source = {name.replace("0.", "fc1_").replace("2.", "fc2_"): a for name, a in arrays().items()}
    rules = [(r"^fc(\d)_", r"\1."), (r"^1\.", "0.")]
    assert load_into(target, source, remap=rules).is_complete
    with pytest.raises(StoreError, match="two tensors get one name"):
        load_into(target, arrays(), remap=[(r"^2\.", "0.")])


def test_adapters_transpose_and_divide():
    target = model()
    source = arrays()
    source["0.weight"] = np.arange(12, dtype=np.float32).reshape(3, 4)
    source["2"] = np.concatenate([source.pop("2.weight"), source.pop("2.bias")[:, None]], 1)
    adapters = [
        (r"0\.weight", lambda name, x: x.T),
        ("2", lambda name, x: {"2.weight": x[:, :-1], "2.bias": x[:, -1]}),
    ]
    assert load_into(target, source, adapters=adapters).is_complete
    assert target[0].weight.tolist() == source["0.weight"].T.tolist()
    assert values(target)["2.bias"] == [7.0, 7.0]


POLICIES = [
    ("float64", "float32", ("cast",)),
    ("float32", "float32", ("cast", "widen", "same")),
    ("bfloat16", "float32", ("cast", "widen")),
    ("float16", "bfloat16", ("cast",)),
    ("float32", "complex64", ()),
    ("complex128", "complex64", ("cast",)),
    ("int32", "int64", ("cast", "widen")),
    ("int64", "int32", ()),
    ("uint8", "int16", ("cast", "widen")),
    ("int8", "uint8", ()),
    ("bool", "int32", ()),
    ("int32", "float64", ()),
    ("float8_e4m3", "float32", ()),
    ("float8_e4m3", "float8_e4m3", ("cast", "widen", "same")),
]


@pytest.mark.parametrize(("given", "target", "allowed"), POLICIES, ids=str)
def test_dtype_policies(given, target, allowed):
    class Holder:
        def __init__(self):
            self.tensor = ruda.zeros(3, dtype=target)

        def state_dict(self):
            return {"x": self.tensor}

    for policy in ("cast", "widen", "same"):
        holder = Holder()
        source = {"x": np.ones(3).astype(dtype_of(given))}
        if policy in allowed:
            load_into(holder, source, dtype=policy)
            assert (holder.tensor.numpy().astype(np.complex128) == 1).all()
        else:
            with pytest.raises(LoadError, match=rf"x: {given} for {target}"):
                load_into(holder, source, dtype=policy)
    with pytest.raises(ArgumentError, match="unknown dtype policy"):
        load_into(holder, {}, dtype="any")


def dtype_of(name: str) -> np.dtype:
    return ruda.zeros(1, dtype=name).numpy().dtype


def test_tied_parameters_need_one_of_their_names():
    linear = nn.Linear(3, 3)
    target = nn.Sequential(linear, linear)
    one = {"0.weight": np.ones((3, 3), np.float32), "1.bias": np.zeros(3, np.float32)}
    assert load_into(target, one).is_complete
    assert linear.weight.tolist() == one["0.weight"].tolist()
    load_into(target, one | {"1.weight": one["0.weight"]})
    with pytest.raises(StoreError, match="tied parameters have different values"):
        load_into(target, one | {"1.weight": one["0.weight"] + 1})


def test_gradients_flags_and_versions_survive():
    target = model()
    target[2].requires_grad_(False)
    x = ruda.ones((2, 3))
    loss = target(x).sum()
    load_into(target, arrays())
    assert target[0].weight.requires_grad and not target[2].weight.requires_grad
    with pytest.raises(VersionError):
        loss.backward()
    target(x).sum().backward()
    assert target[0].weight.grad is not None


def test_only_what_is_used_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    save_arrays(path, arrays() | {"flags": np.array([True, False])})
    raw = path.read_bytes()
    path.write_bytes(raw[:-2] + b"\1\7")
    assert load_into(model(), path, filter=r"^\d").is_complete
    with pytest.raises(StoreError, match="not booleans"):
        load_into(model(), path, strict=False)


def test_long_reports_are_cut():
    unused = tuple(f"name{i}" for i in range(100))
    text = str(LoadReport(unused=unused))
    assert "100 unused" in text and "and 92 more" in text and len(text.splitlines()) == 11


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("ending", ["safetensors", "npz"])
def test_a_damaged_file_changes_nothing_or_loads_whole(tmp_path, count, ending):
    path, target = tmp_path / f"x.{ending}", model()
    (save_arrays if ending == "safetensors" else save_npz)(path, arrays())
    before = values(target)
    refused = 0
    for raw in mutated(path.read_bytes(), count):
        path.write_bytes(raw)
        try:
            load_into(target, path)
        except StoreError:
            refused += 1
            assert values(target) == before
        else:
            load_into(target, {name: np.array(v, np.float32) for name, v in before.items()})
    assert refused > count // 3


def test_shards_are_loaded_lazily(tmp_path):
    save_shards(tmp_path, arrays(), max_shard_size=1)
    target = model()
    assert load_into(target, tmp_path, filter="weight").applied == ("0.weight", "2.weight")
