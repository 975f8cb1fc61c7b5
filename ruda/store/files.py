"""Saving and loading named tensors; the ending of a path says in which format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ruda.core.devices import DeviceLike
from ruda.core.devices import client as client_of
from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, DTypeError, StoreError
from ruda.store.errors import MissingFileError
from ruda.store.header import DTYPES
from ruda.store.npz import load_npz, save_npz
from ruda.store.safetensors import load_arrays, open_file, read_header, save_arrays
from ruda.store.shards import open_shards, save_shards
from ruda.store.source import Path
from ruda.store.torch_file import load_torch
from ruda.store.torch_writer import save_torch
from ruda.tensor.tensor import RudaTensor, from_array

_SAFETENSORS = ".safetensors"
_INDEX = ".safetensors.index.json"
_TORCH = (".pt", ".pth", ".bin")
_NPZ = ".npz"
_FORMATS = ".safetensors, .npz, .pt, .pth, .bin or a folder"


def save(
    path: Path,
    tensors: Mapping[str, RudaTensor],
    metadata: Mapping[str, str] | None = None,
    *,
    max_shard_size: int | str | None = None,
) -> None:
    """Write tensors of any device and layout to a file, or to a folder in several files.

    The ending of the path is the format: ``.safetensors``, which alone keeps the strings of
    ``metadata``, ``.npz``, or ``.pt``, ``.pth`` and ``.bin`` for PyTorch; a path without one is a
    folder of safetensors files, of at most ``max_shard_size`` (by default "5GB") each. A file is
    replaced whole or not at all. Before anything is written, raises ``DTypeError`` for what is no
    path or mapping, ``StoreError`` for another ending, values that are no tensors or are quantized,
    and dtypes that the format does not have, ``ArgumentError`` for options of another format; an
    ``OSError`` from writing leaves the old file as it was.

    >>> import os, tempfile, numpy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(path, {"weight": from_array(numpy.array([1.0, 2.0]))}, {"step": "7"})
    ...     load(path)["weight"].tolist(), load_metadata(path)
    ([1.0, 2.0], {'step': '7'})
    """
    _check_arguments(path, tensors)
    where = os.fspath(path)
    tensors = dict(tensors)
    ending = _ending("save", where)
    if metadata and ending in (_NPZ, *_TORCH):
        raise ArgumentError("save", "metadata need safetensors", ending, hint="another file")
    if max_shard_size is not None and ending:
        raise ArgumentError("save", "shards need a folder", where, hint=os.path.dirname(where))
    for name, tensor in tensors.items():
        _check_plain(name, tensor, where)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if ending == _SAFETENSORS:
        save_arrays(where, arrays, metadata)
    elif ending == _NPZ:
        save_npz(where, arrays)
    elif ending in _TORCH:
        save_torch(where, arrays)
    else:
        save_shards(where, arrays, metadata, max_shard_size=max_shard_size or "5GB")


def load(path: Path, device: DeviceLike | None = None) -> dict[str, RudaTensor]:
    """Read all tensors of a file or folder onto a device, by default the default device.

    The formats are those of ``save``; a folder may have an index of shards, which may be named too.
    Raises ``MissingFileError``, which is also a ``FileNotFoundError``, and ``StoreError`` for
    another ending, a file that is not whole and well formed, and dtypes that ruda does not have.
    """
    where = os.fspath(path)
    target = client_of(device).device
    if _ending("load", where) == _SAFETENSORS:
        header = read_header(where)
        _check_dtypes({name: DTYPES[e.dtype] for name, e in header.tensors.items()}, where)
        arrays, _ = load_arrays(where)
    else:
        with open_arrays(where) as found:
            _check_dtypes({name: found[name].dtype for name in found}, where)
            arrays = {name: _owned(found[name], where) for name in found}
    return {name: from_array(array, target) for name, array in arrays.items()}


def load_metadata(path: Path) -> dict[str, str]:
    """Read the strings beside the tensors of a ``.safetensors`` file; raises as ``load`` does."""
    where = os.fspath(path)
    if _ending("load", where) == _SAFETENSORS:
        return read_header(where).metadata
    with open_arrays(where) as arrays:
        return dict(getattr(arrays, "metadata", {}))


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """Open a file or folder of any format as a mapping of ndarrays, lazily where the format can.

    Raises as ``load`` does, and does not look at the dtypes.
    """
    where = os.fspath(path)
    ending = _ending("load", where)
    if ending == _SAFETENSORS:
        with open_file(where) as file:
            yield file
    elif ending in ("", _INDEX):
        with open_shards(where) as shards:
            yield shards
    elif ending == _NPZ:
        yield load_npz(where)
    else:
        yield _state_dict(load_torch(where), where)


def _ending(op: str, where: str) -> str:
    """The format of a path: one of the endings, or an empty text for a folder."""
    for ending in (_SAFETENSORS, _INDEX, _NPZ, *_TORCH):
        if where.endswith(ending) and not (op == "save" and ending == _INDEX):
            return ending
    found = os.path.splitext(where)[1]
    if os.path.isdir(where) or (op == "save" and not found):
        return ""
    if op == "load" and not found and not os.path.exists(where):
        raise MissingFileError(where)
    hint = f"a name such as model{_SAFETENSORS}"
    raise StoreError(op, "unsupported file format", f"the ending {found!r}", _FORMATS, hint, where)


def _state_dict(found: Any, path: str) -> dict[str, np.ndarray]:
    """What a ``.pt`` file holds, where it is a mapping from names to tensors and nothing else."""
    items = found.items() if type(found) is dict else ()
    other = [k for k, v in items if type(k) is not str or not isinstance(v, np.ndarray)]
    if type(found) is dict and not other:
        return dict(items)
    got = f"{str(other[0])[:80]!r}, which is none" if other else type(found).__name__
    hint = "ruda.store.load_torch(path), and the part that holds the weights"
    expected = "a mapping from names to tensors"
    raise StoreError("load", "not a state dict", got, expected, hint, path)


def _owned(array: np.ndarray, path: str) -> np.ndarray:
    """An array in row-major order that shares memory with no file and no other array."""
    return np.asarray(array, order="C") if path.endswith(_NPZ) else array.copy()


def _check_arguments(path: Any, tensors: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        hint = "save(path, tensors): the path comes first"
        raise DTypeError("save", "not a path", type(path).__name__, "a path", hint)
    if not isinstance(tensors, Mapping):
        hint = "module.state_dict(), or {'x': x} for one tensor"
        expected = "a mapping from names to tensors"
        raise DTypeError("save", "not named tensors", type(tensors).__name__, expected, hint)


def _check_plain(name: Any, tensor: Any, path: str) -> None:
    if not isinstance(tensor, RudaTensor):
        got, hint = type(tensor).__name__, "ruda.asarray(x)"
        raise StoreError("save", "no tensor", got, "a ruda tensor", hint, path, str(name))
    if tensor.qparams is not None:
        hint = "saving its values and scales as tensors of their own"
        got, expected = "a quantized tensor", "a plain one"
        raise StoreError("save", "cannot be stored", got, expected, hint, path, str(name))


def _check_dtypes(dtypes: Mapping[str, np.dtype], path: str) -> None:
    for name, dtype in dtypes.items():
        try:
            as_dtype(dtype, "load")
        except DTypeError as error:
            expected, hint = str(error.expected), "ruda.store.open_arrays for an ndarray"
            what, got = "ruda has no such dtype", dtype.name
            raise StoreError("load", what, got, expected, hint, path, name) from error
