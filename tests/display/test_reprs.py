"""What holds a training run together says in a line what it is."""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from ruda import data, nn, optim
from ruda.store import Checkpoint


def test_datasets_and_loaders() -> None:
    arrays = data.ArrayDataset(np.ones((10, 3), "float32"), np.arange(10))
    assert repr(arrays) == "ArrayDataset(float32[10, 3], int64[10])"
    train, test = data.split(arrays, 0.8, 0.2)
    assert repr(train) == f"Subset(8 of {arrays!r})"
    assert repr(data.map(range(3), abs)) == "Mapped(range of 3, abs)"
    assert repr(data.concat(test, [1, 2])) == f"Concatenated({test!r}, list of 2)"
    assert repr(data.window(range(9), 2)) == "Windows(range of 9, size=2, stride=1)"
    loader = data.DataLoader(arrays, 4, shuffle=True, seed=5)
    facts = "batch_size=4, shuffle=True, seed=5, epoch=0, position=0"
    assert repr(loader) == f"DataLoader({arrays!r}, {facts})"
    rare = data.WeightedSampler([1.0, 2.0], samples=5)
    assert repr(rare) == "WeightedSampler(5 of 2, replacement=True)"
    shard = data.ShardSampler(data.ShuffleSampler(10), 0, 2)
    assert repr(shard) == "ShardSampler(ShuffleSampler(10), rank=0, world=2)"
    assert f"sampler={shard!r}" in repr(data.DataLoader(arrays, 4, sampler=shard))
    assert repr(data.Pad(multiple=4)) == "Pad(0, multiple=4, side='right')"
    assert repr(data.Pack(5)) == "Pack(5, value=0)"


def test_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows"
    path.write_text("1,2\n3,4\n")
    assert repr(data.TextDataset(path)) == f"TextDataset({str(path)!r})"
    assert repr(data.CsvDataset(path)) == f"CsvDataset({str(path)!r})"
    assert repr(data.JsonlDataset(path)) == f"JsonlDataset({str(path)!r})"
    assert repr(data.TokenDataset(path, "uint8", 4)) == f"TokenDataset({str(path)!r})"
    np.save(tmp_path / "x.npy", np.ones(3))
    assert repr(data.MappedDataset(tmp_path / "x.npy")).endswith("x.npy')")
    checkpoint = Checkpoint(tmp_path / "run", keep_last=2)
    checkpoint.save(3, model=nn.Linear(1, 1))
    facts = "keep_last=2, keep_best=0, steps=[3]"
    assert repr(checkpoint) == f"Checkpoint({str(tmp_path / 'run')!r}, {facts})"


def test_training() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    groups = nn.parameter_groups(model, [("bias", {"weight_decay": 0.0})])
    assert repr(groups) == str(groups) == "bias: 0.bias\nall others: 0.weight"
    opt = optim.SGD(groups, lr=0.1)
    assert repr(optim.Schedule(opt, optim.cosine, total=9)) == "Schedule(SGD, cosine, total=9)"
    parts = [functools.partial(optim.linear, total=5), optim.constant]
    schedule = optim.Schedule(opt, optim.sequential, parts=parts, milestones=[5])
    assert repr(schedule) == "Schedule(SGD, sequential, parts=[linear, constant], milestones=[5])"
    assert "growth_interval=2000" in repr(optim.GradScaler())
    assert repr(optim.EMA(model, 0.9)) == "EMA(Sequential, decay=0.9, warmup=False)"
    assert repr(optim.SWA(model)) == "SWA(Sequential)"
    accumulator = optim.GradientAccumulator(opt, every=2)
    assert repr(accumulator).startswith("GradientAccumulator(SGD, every=2, weighting='")
