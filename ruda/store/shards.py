"""Tensors spread over several safetensors files, with an index that says which is where.

The layout is that of model hubs: ``model-00001-of-00003.safetensors`` and so on beside
``model.safetensors.index.json``, or one ``model.safetensors`` without an index.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from types import TracebackType

import numpy as np

from ruda.core.errors import ArgumentError, StoreError
from ruda.store.atomic import replacing
from ruda.store.errors import MissingFileError, shown
from ruda.store.header import AGAIN
from ruda.store.jsonfile import read_json
from ruda.store.safetensors import SafetensorsFile, open_file, save_arrays
from ruda.store.source import Path

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_PLAIN_NAME = re.compile(r"[^/\\\x00:]+\.safetensors")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)?B?")
_UNITS = {None: 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def read_index(path: Path) -> dict[str, str]:
    """Read which file of the folder each tensor is in.

    Raises ``MissingFileError``, and ``StoreError`` for an index that is malformed or names a file
    outside of its own folder.
    """
    where = os.fspath(path)
    weight_map = read_json(where).get("weight_map")
    if type(weight_map) is not dict:
        got, expected = type(weight_map).__name__, "weight_map, from tensors to files"
        raise StoreError("load", "not an index", got, expected, AGAIN, where)
    for name, shard in weight_map.items():
        if type(shard) is not str or not _PLAIN_NAME.fullmatch(shard):
            expected = "the name of a .safetensors file in the same folder"
            got, what = shown(shard), "the index names another kind of file"
            raise StoreError("load", what, got, expected, AGAIN, where, name)
    return weight_map


def open_shards(path: Path) -> ShardedFile:
    """Open a folder, its index, or the only file in it; no tensor is read until it is used.

    Raises ``MissingFileError`` where the folder has neither, and ``StoreError`` where a file is
    damaged or index and files do not name the same tensors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arrays = {"a": np.arange(4.0), "b": np.arange(2.0)}
    ...     files = save_shards(folder, arrays, max_shard_size=32)
    ...     with open_shards(folder) as tensors:
    ...         print(files, tensors["b"].tolist())
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'] [0.0, 1.0]
    """
    where = os.fspath(path)
    index = os.path.join(where, INDEX) if os.path.isdir(where) else where
    folder = os.path.dirname(index)
    try:
        weight_map = read_index(index)
    except MissingFileError:
        single = os.path.join(folder, SINGLE)
        if index == where or not os.path.exists(single):
            raise
        file = open_file(single)
        return ShardedFile(where, dict.fromkeys(file, SINGLE), {SINGLE: file})
    files = {}
    with contextlib.ExitStack() as stack:
        for shard in sorted(set(weight_map.values())):
            files[shard] = stack.enter_context(open_file(os.path.join(folder, shard)))
        _check_index(weight_map, files, index)
        stack.pop_all()
    return ShardedFile(where, weight_map, files)


def save_shards(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    *,
    max_shard_size: int | str = "5GB",
) -> list[str]:
    """Write arrays into a folder, in files of at most ``max_shard_size`` each; return their names.

    A tensor is never divided. What the folder held before stays whole and is what is loaded until
    the last file is written; then it is removed. Raises as ``save_arrays`` does, and
    ``ArgumentError`` for a size that is not a number of bytes or a text such as "5GB" or "512MiB".
    """
    folder, arrays = os.fspath(path), dict(arrays)
    groups = _groups(arrays, _bytes(max_shard_size))
    os.makedirs(folder, exist_ok=True)
    index = os.path.join(folder, INDEX)
    before = _owned(folder)
    if len(groups) == 1:
        names = [SINGLE]
        save_arrays(os.path.join(folder, SINGLE), arrays, metadata)
        # Until here the index, where there is one, goes before.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(index)
    else:
        names = _shard_names(folder, len(groups))
        for name, group in zip(names, groups, strict=True):
            part = {key: arrays[key] for key in group}
            save_arrays(os.path.join(folder, name), part, metadata)
        _write_index(index, arrays, groups, names)
    for name in before - set(names):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    return names


class ShardedFile(Mapping[str, np.ndarray]):
    """Open shards as one mapping from names to read-only ndarrays in the files' memory maps."""

    def __init__(
        self, path: str, weight_map: dict[str, str], files: dict[str, SafetensorsFile]
    ) -> None:
        self.path = path
        self.weight_map = weight_map
        self.files = files

    @property
    def metadata(self) -> dict[str, str]:
        """The strings stored beside the tensors of the first file."""
        return next(iter(self.files.values())).metadata if self.files else {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.files[self.weight_map[name]][name]

    def __contains__(self, name: object) -> bool:
        return name in self.weight_map

    def __iter__(self) -> Iterator[str]:
        return iter(self.weight_map)

    def __len__(self) -> int:
        return len(self.weight_map)

    def __repr__(self) -> str:
        return f"<ShardedFile {self.path!r}: {len(self)} tensors in {len(self.files)} files>"

    def __enter__(self) -> ShardedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the maps; arrays taken before keep theirs."""
        for file in self.files.values():
            file.close()


def _check_index(weight_map: dict[str, str], files: dict[str, SafetensorsFile], path: str) -> None:
    for name, shard in weight_map.items():
        if name not in files[shard]:
            got, expected = shown(shard), "a file that has the tensor"
            what = "the index names a file without the tensor"
            raise StoreError("load", what, got, expected, AGAIN, path, name)
    for shard, file in files.items():
        for name in file:
            if weight_map.get(name) != shard:
                got, expected = shown(shard), "every tensor of the files in the index"
                what = "the index leaves out a tensor"
                raise StoreError("load", what, got, expected, AGAIN, path, name)


def _groups(arrays: Mapping[str, np.ndarray], limit: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    size = 0
    for name, array in arrays.items():
        count = getattr(array, "nbytes", 0)
        if groups[-1] and size + count > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += count
    return groups


def _bytes(size: int | str) -> int:
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    count = int(float(found[1]) * _UNITS[found[2]]) if found else size
    if type(count) is not int or count < 1:
        expected = "a number of bytes, or a text such as '5GB'"
        raise ArgumentError("save", "not a shard size", repr(size), expected)
    return count


def _shard_names(folder: str, count: int) -> list[str]:
    """Names that are free: a file that is still being loaded from is not written over."""
    names = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    if any(os.path.lexists(os.path.join(folder, name)) for name in names):
        mark = os.urandom(4).hex()
        names = [f"model-{mark}-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    return names


def _owned(folder: str) -> set[str]:
    """The files of the folder that are loaded from before a save."""
    try:
        found = set(read_index(os.path.join(folder, INDEX)).values())
    except MissingFileError:
        found = set()
    return found | ({SINGLE} if os.path.isfile(os.path.join(folder, SINGLE)) else set())


def _write_index(
    path: str, arrays: Mapping[str, np.ndarray], groups: list[list[str]], names: list[str]
) -> None:
    weight_map = {key: name for name, group in zip(names, groups, strict=True) for key in group}
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    with replacing(path) as file:
        file.write(json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n")
