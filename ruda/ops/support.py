"""Which dtypes and devices an operator runs with, read off the table as ``docs/ops.md`` is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import ALL, ARITHMETIC, CATEGORY_NAMES, DType, as_dtype
from ruda.core.errors import ArgumentError, DeviceError, DTypeError
from ruda.core.spec import absent_spec, spec_of
from ruda.ops.table import COMPOSITES, TABLE, Composite
from ruda.tensor.dispatch import Op


class Refusal(str):
    """Why something is not supported: a text that counts as false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def supports(operator: Any, dtypes: Any = (), device: Any = None) -> bool | Refusal:
    """True, or why ``device`` does not run ``operator`` on operands of ``dtypes``.

    ``operator`` is a name of ``docs/ops.md`` or the function of that name; ``dtypes`` one dtype, or
    one for each operand in the order of the row, from the first on. The reason is a text that
    counts as false. What a composite takes is decided by the operators it calls: of a dtype it says
    only whether arithmetic is done in it. Raises ``ArgumentError`` for an unknown name.

    >>> bool(supports("matmul", ["float32", "float32"], "cpu"))
    True
    >>> print(supports("matmul", "bool", "cpu"))
    matmul: x does not take bool. Expected numeric.
    """
    entry = _entry(operator)
    given = [dtypes] if isinstance(dtypes, str | DType) else dtypes
    kinds = [as_dtype(dtype, "supports") for dtype in given]
    try:
        client = client_of(device)
    except DeviceError as error:
        return Refusal(error)
    if isinstance(entry, Composite):
        bad = [dtype for dtype in kinds if dtype not in ARITHMETIC]
        return Refusal(f"{entry.name}: no arithmetic is done in {bad[0]}") if bad else True
    obstacle = client.obstacle(entry)
    if obstacle is not None:
        return Refusal(f"{entry.name}: {obstacle}")
    return _of_row(entry, kinds, client)


def _entry(operator: Any) -> Op | Composite:
    name = getattr(operator, "__name__", operator)
    found = TABLE.get(name) or COMPOSITES.get(name) if isinstance(name, str) else None
    if found is None:
        near = difflib.get_close_matches(str(name), [*TABLE, *COMPOSITES])
        hint = f"one of {', '.join(near)}" if near else "a name of docs/ops.md"
        raise ArgumentError("supports", "not an operator of the table", repr(name), hint=hint)
    return found


def _of_row(op: Op, kinds: Sequence[DType], client: Any) -> bool | Refusal:
    if len(kinds) > len(op.args):
        got = f"{len(kinds)} dtypes for the operands {', '.join(op.args)}"
        raise ArgumentError("supports", f"{op.name} has fewer operands", got)
    for name, dtype in zip(op.args, kinds, strict=False):
        allowed = taken(op, name)
        if dtype not in allowed:
            text = f"{op.name}: {name} does not take {dtype}. Expected {words(allowed)}."
            return Refusal(text)
    needed = [name for name in op.args if name not in op.optional]
    if op.attrs or len(kinds) < len(needed):
        return True
    # Nothing but dtypes decides, so the row's own rule says whether they go together.
    specs = [spec_of(client, (), dtype) for dtype in kinds]
    specs += [absent_spec(client)] * (len(op.args) - len(kinds))
    try:
        op.dtype(op, tuple(specs))  # type: ignore[misc]
    except DTypeError as error:
        return Refusal(error)
    return True


def taken(op: Op, argument: str) -> tuple[DType, ...]:
    """The dtypes that an operand of a row may have."""
    return op.takes.get(argument) or op.accepts or ALL


def words(dtypes: tuple[DType, ...]) -> str:
    """The name of a set of dtypes where it has one, else all of them."""
    if set(dtypes) == set(ALL):
        return "all"
    word = CATEGORY_NAMES.get(dtypes)
    if word is not None:
        return word.removeprefix("an ").removeprefix("a ")
    return ", ".join(str(dtype) for dtype in dtypes)
