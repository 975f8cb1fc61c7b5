"""A tensor as text: small ones whole, large ones by their corners and a line of facts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ruda.display.sample import window
from ruda.display.summary import Summary, summarize
from ruda.display.words import layout, memory, number, share

# Up to this many elements all are printed.
WHOLE = 1000
# Exact statistics up to this many elements, about 15 ms; a debugger shows many tensors at once.
EXACT = 1 << 20
# How many elements to print at both ends of an axis, by the number of axes; more than six of them
# print too many corners to be of use.
EDGES = (0, 3, 3, 3, 2, 1, 1)


def describe(tensor: Any) -> str:
    """The values, dtype when it is not float32, device when it is not the CPU."""
    spec = tensor.spec
    if spec.client.device.kind == "null":
        return f"tensor(<no values>, {spec})"
    large = spec.size > WHOLE
    parts = [_corners(tensor) if large else _whole(tensor)]
    if large or (spec.size == 0 and spec.shape != (0,)):
        parts.append(f"shape={spec.shape}")
    if spec.dtype.name not in ("float32", "bool"):
        parts.append(f"dtype={spec.dtype}")
    if spec.client.device.kind != "cpu":
        parts.append(f"device={str(spec.client.device)!r}")
    if tensor.node is not None:
        parts.append("requires_grad=True")
    if not large:
        return f"tensor({', '.join(parts)})"
    return f"tensor({parts[0]},\n       {', '.join(parts[1:])})\n# {facts(tensor)}"


def values_text(tensor: Any) -> str:
    """The values alone, whole or by their corners, in brackets, on wide lines."""
    with np.printoptions(linewidth=100):
        return _corners(tensor, "") if tensor.spec.size > WHOLE else _whole(tensor, "")


def facts(tensor: Any) -> str:
    """One line of size, memory, layout and statistics."""
    spec = tensor.spec
    said = [f"{spec.size:,} elements", memory(spec.nbytes)]
    if not spec.contiguous:
        said.append(layout(spec))
    return ", ".join([*said, *statistics(summarize(tensor, EXACT), spec.dtype)])


def statistics(summary: Summary, dtype: Any) -> list[str]:
    """Statistics as phrases: ``min -1``, ``3 NaN``, and how many elements they come from."""
    said = []
    if dtype.kind == "bool":
        said.append(f"{share(1 - summary.zeros / summary.size)} True")
    elif summary.low is not None:
        names = ("min", "max", "mean", "std")
        values = (summary.low, summary.high, summary.mean, summary.std)
        bars = "|x| " if dtype.kind == "complex" else ""
        said += [f"{bars}{n} {number(v)}" for n, v in zip(names, values, strict=True)]
    about = "" if summary.exact else "about "
    kinds = (("NaN", summary.nan), ("inf", summary.plus), ("-inf", summary.minus))
    said += [f"{about}{count:,} {name}" for name, count in kinds if count]
    if not summary.exact:
        said.append(f"from a sample of {summary.seen:,}")
    return said


def _printable(values: Any) -> Any:
    """NumPy prints half and storage types of other packages badly; float32 holds them all."""
    # Asked by kind, one type of ml_dtypes would pass for NumPy's own; 2 means another package's
    # type, and an unpickled array has 0, as its dtype is a copy.
    return values.astype(np.float32) if values.dtype.isbuiltin == 2 else values


def _whole(tensor: Any, prefix: str = "tensor(") -> str:
    values = _printable(tensor.numpy())
    return np.array2string(values, separator=", ", prefix=prefix, threshold=WHOLE)


def _corners(tensor: Any, prefix: str = "tensor(") -> str:
    shape = tensor.spec.shape
    if len(shape) >= len(EDGES):
        return "[...]"
    edge = EDGES[len(shape)]
    values = _printable(corners(tensor, edge))
    return np.array2string(values, separator=", ", prefix=prefix, threshold=0, edgeitems=edge)


def corners(tensor: Any, edge: int) -> Any:
    """``edge`` elements from both ends of each axis and one between them, as an ndarray.

    NumPy prints that as it prints the whole, and only the corners are read.
    """
    shape = tensor.spec.shape
    pieces = [
        [(0, edge + 1), (length - edge, edge)] if length > 2 * edge else [(0, length)]
        for length in shape
    ]
    out = np.empty([sum(count for _, count in axis) for axis in pieces], tensor.spec.dtype.numpy)
    ones = (1,) * len(shape)
    for piece in itertools.product(*pieces):
        starts, counts = zip(*piece, strict=True)
        target = tuple(
            slice(0, count) if start == 0 else slice(edge + 1, edge + 1 + count)
            for start, count in piece
        )
        out[target] = window(tensor, starts, counts, ones).numpy()
    return out
