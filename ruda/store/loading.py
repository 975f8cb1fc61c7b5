"""Loading tensors into a model: names are mapped, everything is checked, then all is written."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ruda.core.dtypes import DType, as_dtype
from ruda.core.errors import ArgumentError, DTypeError, StoreError
from ruda.core.mode import no_grad
from ruda.core.shapes import Shape
from ruda.store.files import open_arrays
from ruda.store.report import LoadError, LoadReport, prefix_rule, suggested
from ruda.store.source import Path
from ruda.tensor.tensor import RudaTensor, from_array

Rule = tuple[str, str]
Adapter = tuple[str, Callable[[str, Any], Any]]

_POLICIES = ("cast", "widen", "same")


class HasState(Protocol):
    """A model, or anything whose state is tensors by name that share its memory."""

    def state_dict(self) -> dict[str, RudaTensor]: ...


def load_into(
    module: HasState,
    source: Path | Mapping[str, Any],
    *,
    strict: bool = True,
    remap: Iterable[Rule] = (),
    filter: str | Callable[[str], bool] | None = None,
    adapters: Iterable[Adapter] = (),
    dtype: str = "cast",
) -> LoadReport:
    """Write the tensors of a file, a folder, or a mapping into a model's own, and report.

    Each name of the source goes through the rules of ``remap``, in their order, as by ``re.sub``.
    Only names that ``filter`` (a pattern to be found in the name, or a function) accepts take part,
    on both sides: the others are neither missing nor unused. An adapter is a pattern for whole
    names and a function of name and value, which returns the value to load, or a mapping of
    several. ``dtype`` says what may differ: "cast" converts real numbers to real ones and complex
    to complex, "widen" only where no value changes, "same" nothing; integers are never narrowed and
    stored codes (8-bit floats) are never taken for numbers.

    Everything is checked before anything is written. Raises ``LoadError``, whose ``report`` says
    what does not fit, for shapes, dtypes and, if ``strict``, missing and unused names;
    ``StoreError`` for a damaged file, two tensors of one name, or tied parameters that would get
    different values. Optimizers with masters need ``sync_masters()`` afterwards.

    >>> model = ruda.nn.Linear(2, 1, bias=False)
    >>> print(load_into(model, {"fc.weight": ruda.ones((1, 2))}, remap=[(r"^fc\\.", "")]))
    1 applied
    """
    if dtype not in _POLICIES:
        raise ArgumentError(
            "load_into", "unknown dtype policy", repr(dtype), " or ".join(_POLICIES)
        )
    accepts = _acceptance(filter)
    own = {name: value for name, value in module.state_dict().items() if accepts(name)}
    where = None if isinstance(source, Mapping) else os.fspath(source)
    with _opened(source) as found:
        given = _adapted(found, list(remap), list(adapters), accepts, where)
        report, changes = compared(own, given, dtype)
        wrong = report.shape_errors or report.dtype_errors
        if wrong or (strict and not report.is_complete):
            raise LoadError(report, where)
        _check_ties(own, given, changes, where)
        with no_grad():
            for name in changes:
                _write(own[name], given[name])
    return report


@contextlib.contextmanager
def _opened(source: Path | Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, Mapping):
        yield source
        return
    with open_arrays(source) as arrays:
        yield arrays


def _acceptance(filter: str | Callable[[str], bool] | None) -> Callable[[str], bool]:
    if filter is None:
        return lambda name: True
    if callable(filter):
        return filter
    pattern = re.compile(filter)
    return lambda name: pattern.search(name) is not None


def _adapted(
    found: Mapping[str, Any],
    rules: list[Rule],
    adapters: list[Adapter],
    accepts: Callable[[str], bool],
    path: str | None,
) -> dict[str, Any]:
    """The tensors that take part, under the names that the model should have for them."""
    out: dict[str, Any] = {}
    for original in found:
        name = original
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        fitting = (fn for pattern, fn in adapters if re.fullmatch(pattern, name))
        # Not even read unless it is needed; an adapter may still give it another name.
        adapter = next(fitting, None)
        if adapter is None and not accepts(name):
            continue
        value = found[original] if adapter is None else adapter(name, found[original])
        for part, tensor in (value if isinstance(value, Mapping) else {name: value}).items():
            if part in out:
                what, hint = "two tensors get one name", "another remap, or a filter"
                raise StoreError("load_into", what, original, "one", hint, path, part)
            if accepts(part):
                out[part] = _checked_value(tensor, part, path)
    return out


def _checked_value(value: Any, name: str, path: str | None) -> Any:
    if isinstance(value, RudaTensor | np.ndarray):
        return value
    got, expected = type(value).__name__, "a tensor or an ndarray"
    raise StoreError("load_into", "no tensor", got, expected, "ruda.asarray(x)", path, name)


def compared(
    own: Mapping[str, RudaTensor], given: Mapping[str, Any], policy: str
) -> tuple[LoadReport, list[str]]:
    """What loading ``given`` into ``own`` would come to, and which of ``own`` would be written."""
    shapes: dict[str, str] = {}
    dtypes: dict[str, str] = {}
    changes = [name for name in own if name in given]
    for name in changes:
        target, value = own[name], given[name]
        if tuple(value.shape) != target.shape:
            shapes[name] = f"{_listed(value.shape)} for {_listed(target.shape)}"
            if value.size == target.size:
                shapes[name] += ", as many elements: an adapter may transpose or reshape"
        problem = _dtype_problem(value.dtype, target.dtype, policy)
        if problem:
            dtypes[name] = problem
    tied = {_place(own[name]) for name in changes}
    missing = [name for name in own if name not in given and _place(own[name]) not in tied]
    unused = [name for name in given if name not in own]
    report = LoadReport(
        tuple(name for name in changes if name not in shapes and name not in dtypes),
        tuple(missing),
        tuple(unused),
        shapes,
        dtypes,
        suggested(missing, unused),
        prefix_rule(missing, unused),
    )
    return report, changes


def _dtype_problem(given: Any, target: DType, policy: str) -> str | None:
    try:
        dtype = as_dtype(given)
    except DTypeError:
        return f"{given} is no dtype of ruda"
    if dtype is target:
        return None
    kinds = {dtype.kind, target.kind}
    alike = len(kinds) == 1 or kinds == {"int", "uint"}
    if policy == "same" or "storage" in kinds or not alike:
        return f"{dtype} for {target}"
    narrows = not np.can_cast(dtype.numpy, target.numpy, "safe")
    if narrows and (policy == "widen" or target.is_integer):
        return f"{dtype} for {target}, which would change values"
    return None


def _place(tensor: RudaTensor) -> tuple[object, ...]:
    """What tied tensors have in common: state dicts give views of their own over one handle."""
    handle: Any = tensor.handle
    root, offset = (handle, 0) if handle.root is None else (handle.root, handle.offset)
    return id(root), offset, id(tensor.spec)


def _check_ties(
    own: Mapping[str, RudaTensor], given: Mapping[str, Any], changes: list[str], path: str | None
) -> None:
    first: dict[tuple[object, ...], str] = {}
    for name in changes:
        other = first.setdefault(_place(own[name]), name)
        if other != name and _bytes(given[name]) != _bytes(given[other]):
            what = "tied parameters have different values"
            got, expected = f"another value for {other!r}", "the same"
            hint = "a filter that leaves one of them out"
            raise StoreError("load_into", what, got, expected, hint, path, name)


def _bytes(value: Any) -> bytes:
    array: np.ndarray = value.numpy() if isinstance(value, RudaTensor) else value
    return array.tobytes()


def _write(target: RudaTensor, value: Any) -> None:
    tensor = value if isinstance(value, RudaTensor) else from_array(value, "cpu")
    moved = tensor.detach().to(target.device)
    target.assign(moved.astype(target.dtype, copy=False))


def _listed(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
