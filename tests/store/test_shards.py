"""Folders of shards: what is written, what is read, and what an index may not say."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, StoreError
from ruda.store import MissingFileError, open_shards, read_index, save_arrays, save_shards, shards
from tests.store.mutations import COUNTS, mutated

ARRAYS = {f"layer.{i}.weight": np.full((4, 4), i, np.float32) for i in range(5)}


def values(folder) -> dict[str, float]:
    with open_shards(folder) as found:
        return {name: float(found[name].max()) for name in found}


EXPECTED = {name: float(array.max()) for name, array in ARRAYS.items()}


def test_shards_are_at_most_as_large_as_asked(tmp_path):
    names = save_shards(tmp_path, ARRAYS, {"step": "7"}, max_shard_size=128)
    assert names == [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    assert sorted(os.listdir(tmp_path)) == [*names, shards.INDEX]
    index = json.loads((tmp_path / shards.INDEX).read_text())
    assert index["metadata"]["total_size"] == 5 * 64
    assert [*index["weight_map"].values()].count(names[0]) == 2
    assert values(tmp_path) == values(tmp_path / shards.INDEX) == EXPECTED
    assert ruda.store.load_metadata(tmp_path) == {"step": "7"}
    with open_shards(tmp_path) as found:
        assert len(found) == 5 and "layer.0.weight" in found and "x" not in found
        assert "5 tensors in 3 files" in repr(found)
    with pytest.raises(StoreError, match="closed"):
        found["layer.0.weight"]


def test_a_tensor_larger_than_a_shard_gets_its_own(tmp_path):
    assert len(save_shards(tmp_path, ARRAYS, max_shard_size=1)) == 5
    assert values(tmp_path) == EXPECTED


@pytest.mark.parametrize(
    ("size", "count"), [("320B", 1), ("0.064KB", 5), ("1KiB", 1), ("5GB", 1), (" 2 TiB ", 1)]
)
def test_sizes_have_units(tmp_path, size, count):
    assert len(save_shards(tmp_path, ARRAYS, max_shard_size=size)) == count


@pytest.mark.parametrize("size", ["", "GB", "5 XB", "-1", 0, 1.5, None, "1e3", True])
def test_other_sizes_are_refused(tmp_path, size):
    with pytest.raises(ArgumentError, match="not a shard size"):
        save_shards(tmp_path / "new", ARRAYS, max_shard_size=size)
    assert not (tmp_path / "new").exists()


def test_ruda_save_and_load_take_folders(tmp_path):
    tensors = {name: ruda.asarray(array) for name, array in ARRAYS.items()}
    folder = tmp_path / "model"
    ruda.save(folder, tensors, max_shard_size=64)
    assert len(read_index(folder / shards.INDEX)) == 5
    loaded = ruda.load(folder)
    assert {name: loaded[name].numpy().max() for name in loaded} == EXPECTED
    ruda.save(folder, tensors)
    assert os.listdir(folder) == [shards.SINGLE]
    assert ruda.load(folder).keys() == ARRAYS.keys()
    with pytest.raises(ArgumentError, match="shards need a folder"):
        ruda.save(tmp_path / "x.safetensors", tensors, max_shard_size=64)
    with pytest.raises(MissingFileError):
        ruda.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFileError):
        ruda.load(tmp_path / "empty")


@pytest.mark.parametrize("before", [64, 128, 10**9])
@pytest.mark.parametrize("after", [64, 128, 10**9])
def test_a_save_that_stops_anywhere_leaves_the_old_or_the_new(tmp_path, monkeypatch, before, after):
    """Each call that changes the folder raises in turn, as a kill there would leave it."""
    new = {name: array + 100 for name, array in ARRAYS.items()}
    changed = {name: value + 100 for name, value in EXPECTED.items()}

    class Stopped(BaseException):
        pass

    for stop in range(40):
        folder = tmp_path / str(stop)
        save_shards(folder, ARRAYS, max_shard_size=before)
        left = [stop]

        def stopping(function, left=left):
            def call(*args):
                left[0] -= 1
                if left[0] < 0:
                    raise Stopped
                return function(*args)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stopping(os.replace))
            patch.setattr(os, "unlink", stopping(os.unlink))
            try:
                save_shards(folder, new, max_shard_size=after)
            except Stopped:
                assert values(folder) in (EXPECTED, changed)
                continue
        assert values(folder) == changed
        assert len(os.listdir(folder)) == len(set(read_names(folder))) + (after < 10**9)
        return
    pytest.fail("the save never ended")


def read_names(folder) -> list[str]:
    with open_shards(folder) as found:
        return list(found.files)


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        "x.safetensors\0",
        ".safetensors/..",
        "x.bin",
        "",
        3,
        None,
        ["x.safetensors"],
    ],
)
def test_names_of_other_folders_are_refused(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    save_arrays(tmp_path / "x.safetensors", {"x": np.ones(2)})
    (folder / shards.INDEX).write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(StoreError, match="the index names another kind of file"):
        open_shards(folder)


MALFORMED = {
    "": "malformed JSON",
    "[]": "malformed JSON",
    "{": "malformed JSON",
    "[" * 200_000: "malformed JSON",
    '{"weight_map": {"x": "x.safetensors", "x": "x.safetensors"}}': "occurs twice",
    "{}": "not an index",
    '{"weight_map": []}': "not an index",
    '{"weight_map": {"y": "x.safetensors"}}': "without the tensor",
    '{"weight_map": {}, "metadata": {}} x': "malformed JSON",
    '{"weight_map": {"x": "none.safetensors"}}': "no such file",
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:40])
def test_malformed_indexes(tmp_path, text):
    save_arrays(tmp_path / "x.safetensors", {"x": np.ones(2)})
    (tmp_path / shards.INDEX).write_text(text)
    with pytest.raises(StoreError, match=MALFORMED[text]):
        open_shards(tmp_path)


def test_a_tensor_that_the_index_leaves_out_is_not_lost_silently(tmp_path):
    save_arrays(tmp_path / "x.safetensors", {"x": np.ones(2), "y": np.ones(2)})
    (tmp_path / shards.INDEX).write_text('{"weight_map": {"x": "x.safetensors"}}')
    with pytest.raises(StoreError, match=r"leaves out a tensor for tensor 'y'"):
        open_shards(tmp_path)


def test_an_oversized_index_is_not_read(tmp_path):
    with open(tmp_path / shards.INDEX, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreError, match="too large"):
        open_shards(tmp_path)


@pytest.mark.parametrize("count", COUNTS)
def test_mutations_raise_or_load(tmp_path, count):
    save_shards(tmp_path, ARRAYS, max_shard_size=128)
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    order = sorted(whole)
    streams = {path: mutated(raw, count) for path, raw in whole.items()}
    refused = 0
    for seed in range(count):
        path = random.Random(seed).choice(order)
        path.write_bytes(next(streams[path]))
        try:
            ruda.load(tmp_path)
        except StoreError:
            refused += 1
        path.write_bytes(whole[path])
    assert refused > count // 3
    assert values(tmp_path) == EXPECTED
