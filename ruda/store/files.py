"""Saving and loading named tensors; the ending of a path says in which format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ruda.core.devices import DeviceLike
from ruda.core.devices import client as client_of
from ruda.core.dtypes import as_dtype
from ruda.core.errors import DTypeError, StoreError
from ruda.store.header import DTYPES, Header
from ruda.store.safetensors import Path, load_arrays, read_header, save_arrays
from ruda.tensor.tensor import RudaTensor, from_array

_SUFFIX = ".safetensors"


def save(
    path: Path, tensors: Mapping[str, RudaTensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors of any device and layout, and strings beside them, to a `.safetensors` file.

    The file is replaced whole or not at all. Raises `StoreError` before anything is written for
    another ending, values that are no tensors or are quantized, and dtypes that the format does
    not have; an `OSError` from writing leaves the old file as it was.

    >>> import os, tempfile, numpy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(path, {"weight": from_array(numpy.array([1.0, 2.0]))}, {"step": "7"})
    ...     load(path)["weight"].tolist(), load_metadata(path)
    ([1.0, 2.0], {'step': '7'})
    """
    where = _checked_path("save", path)
    tensors = dict(tensors)
    for name, tensor in tensors.items():
        _check_plain(name, tensor, where)
    save_arrays(where, {name: tensor.numpy() for name, tensor in tensors.items()}, metadata)


def load(path: Path, device: DeviceLike | None = None) -> dict[str, RudaTensor]:
    """Read all tensors of a `.safetensors` file onto a device, by default the default device.

    Raises `MissingFileError`, which is also a `FileNotFoundError`, and `StoreError` for another
    ending, a file that is not whole and well formed, and dtypes that ruda does not have.
    """
    where = _checked_path("load", path)
    target = client_of(device).device
    _check_dtypes(read_header(where), where)
    arrays, _ = load_arrays(where)
    return {name: from_array(array, target) for name, array in arrays.items()}


def load_metadata(path: Path) -> dict[str, str]:
    """Read the strings stored beside the tensors, and no tensor; raises as `load` does."""
    return read_header(_checked_path("load", path)).metadata


def _checked_path(op: str, path: Path) -> str:
    where = os.fspath(path)
    if not where.endswith(_SUFFIX):
        got = f"the ending {os.path.splitext(where)[1]!r}"
        hint = f"a name such as model{_SUFFIX}"
        raise StoreError(op, "unsupported file format", got, _SUFFIX, hint, where)
    return where


def _check_plain(name: Any, tensor: Any, path: str) -> None:
    if not isinstance(tensor, RudaTensor):
        got, hint = type(tensor).__name__, "ruda.asarray(x)"
        raise StoreError("save", "no tensor", got, "a ruda tensor", hint, path, str(name))
    if tensor.qparams is not None:
        hint = "saving its values and scales as tensors of their own"
        got, expected = "a quantized tensor", "a plain one"
        raise StoreError("save", "cannot be stored", got, expected, hint, path, str(name))


def _check_dtypes(header: Header, path: str) -> None:
    for name, entry in header.tensors.items():
        try:
            as_dtype(DTYPES[entry.dtype], "load")
        except DTypeError as error:
            expected, hint = str(error.expected), "ruda.store.load_arrays for an ndarray"
            what = "ruda has no such dtype"
            raise StoreError("load", what, entry.dtype, expected, hint, path, name) from error
