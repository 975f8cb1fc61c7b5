"""State as JSON beside named arrays: what mappings, lists and scalars hold survives exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from ruda.core.errors import StoreError
from ruda.store.errors import shown
from ruda.store.header import AGAIN, CODES, is_unicode
from ruda.tensor.tensor import RudaTensor, from_array

# The one name that marks an object of JSON as something else than a mapping.
_TAG = "$"
_MAX_DEPTH = 60
# The safetensors format has not these; they are stored as bytes.
_OTHER = {"complex128": np.dtype("c16"), "float4_e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn)}


def encoded(tree: Any, role: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return what JSON can hold of a tree, and its arrays by name.

    A tree is None, booleans, integers, floats, strings, tensors, ndarrays, and lists, tuples and
    mappings of trees. Raises ``StoreError`` for anything else, which ``role`` helps to find.

    >>> encoded({"lr": 0.5, "sizes": (1, 2), "x": np.ones(2)}, "state")[0]["sizes"]
    {'$': 'tuple', 'items': [1, 2]}
    """
    arrays: dict[str, np.ndarray] = {}
    return _encode(tree, (), arrays, role), arrays


def decoded(stub: Any, arrays: Mapping[str, np.ndarray], path: str) -> Any:
    """Return the tree that ``encoded`` took apart; tensors come on the CPU.

    Raises ``StoreError`` where the parts do not fit together.
    """
    try:
        return _decode(stub, arrays)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        what, got = "not a stored state", f"{type(error).__name__}: {shown(str(error))}"
        raise StoreError("load", what, got, "what a save wrote", AGAIN, path) from error


def as_json(tree: Any) -> bytes:
    """Return an object of JSON in its one canonical form."""
    text = json.dumps(tree, allow_nan=False, sort_keys=True, ensure_ascii=False, indent=1)
    return text.encode() + b"\n"


def _encode(value: Any, at: tuple[str, ...], arrays: dict[str, np.ndarray], role: str) -> Any:
    if len(at) > _MAX_DEPTH:
        _fail("nested too deeply, or in itself", f"{_MAX_DEPTH} levels", role, at)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if is_unicode(value) else _fail("not Unicode", shown(value), role, at)
    if isinstance(value, float):
        return (
            float(value) if math.isfinite(value) else {_TAG: "float", "value": repr(float(value))}
        )
    if isinstance(value, RudaTensor):
        if value.qparams is not None:
            _fail("cannot be stored", "a quantized tensor", role, at)
        return _placed(value.numpy(), "tensor", at, arrays, role)
    if isinstance(value, np.ndarray):
        return _placed(value, "array", at, arrays, role)
    if isinstance(value, Mapping):
        return _encode_mapping(value, at, arrays, role)
    if isinstance(value, list | tuple):
        items = [_encode(v, (*at, str(i)), arrays, role) for i, v in enumerate(value)]
        return {_TAG: "tuple", "items": items} if isinstance(value, tuple) else items
    return _fail("cannot be stored", type(value).__name__, role, at)


def _encode_mapping(
    value: Mapping[Any, Any], at: tuple[str, ...], arrays: dict[str, np.ndarray], role: str
) -> Any:
    parts = {key: _encode(v, (*at, str(key)), arrays, role) for key, v in value.items()}
    if all(type(key) is str and is_unicode(key) for key in parts) and _TAG not in parts:
        # The order is part of the state too, and the canonical form does not keep it.
        return parts if list(parts) == sorted(parts) else {_TAG: "dict", "items": _pairs(parts)}
    for key in parts:
        if type(key) not in (str, int, bool, type(None)) or not is_unicode(str(key)):
            _fail("unsupported key", shown(key), role, at)
    return {_TAG: "dict", "items": _pairs(parts)}


def _pairs(parts: dict[Any, Any]) -> list[list[Any]]:
    return [[key, part] for key, part in parts.items()]


def _placed(
    array: np.ndarray, kind: str, at: tuple[str, ...], arrays: dict[str, np.ndarray], role: str
) -> dict[str, Any]:
    name = ".".join(at)
    while name in arrays or name == "__metadata__":
        name += "'"
    stub: dict[str, Any] = {_TAG: kind, "name": name}
    if array.dtype.name in _OTHER:
        stub |= {"dtype": array.dtype.name, "shape": list(array.shape)}
        array = array.astype(_OTHER[array.dtype.name], order="C").reshape(-1).view(np.uint8)
    elif array.dtype.name not in CODES:
        _fail("cannot be stored", f"an array of {array.dtype}", role, at)
    arrays[name] = array
    return stub


def _fail(what: str, got: str, role: str, at: tuple[str, ...]) -> NoReturn:
    place = ".".join((role, *at))[:200]
    expected = "numbers, strings, tensors, arrays, and mappings, lists and tuples of them"
    hint = "storing its numbers, or leaving it out"
    raise StoreError("save", f"{place}: {what}", got, expected, hint)


def _decode(stub: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(stub, list):
        return [_decode(part, arrays) for part in stub]
    if not isinstance(stub, dict):
        return stub
    kind = stub.get(_TAG)
    if kind is None and _TAG not in stub:
        return {key: _decode(part, arrays) for key, part in stub.items()}
    if kind == "float":
        return float(stub["value"])
    if kind == "tuple":
        return tuple(_decode(part, arrays) for part in stub["items"])
    if kind == "dict":
        return {key: _decode(part, arrays) for key, part in stub["items"]}
    array = arrays[stub["name"]]
    if "dtype" in stub:
        array = array.view(_OTHER[stub["dtype"]]).reshape([int(n) for n in stub["shape"]])
    if kind == "array":
        return array
    if kind == "tensor":
        return from_array(array, "cpu")
    raise ValueError(f"unknown mark {shown(kind)}")
