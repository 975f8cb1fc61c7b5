"""Products of a step: matrices, affine maps and their gradients, in parts that shapes decide."""

from __future__ import annotations

import math
from typing import Any

from ruda.backends.numpy.kernels.steps.blas import add_rows, multiply, product
from ruda.backends.numpy.kernels.steps.builder import Builder
from ruda.backends.numpy.kernels.steps.places import Place
from ruda.core.shapes import reshape_strides

# Multiplications of a part, and the least for which a second one is worth its packing.
_PART, _LEAST, _MOST = 1 << 24, 1 << 21, 16
# Elements of a part of a sum over rows.
_SUMMED = 1 << 15

Matrix = tuple[bool, int]


def _matrix(place: Place, rows: int, columns: int) -> Matrix | None:
    """Whether a value seen as a matrix is transposed, and its leading size; None for neither."""
    spec = place.spec
    steps = reshape_strides(spec.shape, spec.strides, (rows, columns))
    if steps is None:
        return None
    down, across = steps
    if across == 1 and down >= columns:
        return False, down
    return (True, across) if down == 1 and across >= rows else None


def _cut(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The axis along which a product is cut, the size of a part and the number of parts."""
    axis, size = (0, m) if m >= n else (1, n)
    work = m * n * k
    count = min(max(work // _PART, 2 if work >= 2 * _LEAST else 1), _MOST)
    step = -(-size // count // 16) * 16
    return axis, step, -(-size // step)


def _multiply(b: Builder, x: Any, y: Any, out: Place, sizes: Any, bias: Any = None) -> None:
    """Parts of ``out = x y`` for (place, matrix) pairs and ``sizes`` m, n, k."""
    (x, (tx, ldx)), (y, (ty, ldy)), (m, n, k) = x, y, sizes
    axis, step, count = _cut(m, n, k)
    cells = [product(), int(tx), int(ty), m, n, k, x, ldx, y, ldy, out, n, axis, step]
    cells.append(0 if bias is None else bias)
    b.add(multiply, count, cells, [out], work=m * n * k / count)


def _folded(spec: Any) -> tuple[int, int]:
    return math.prod(spec.shape[:-1]), spec.shape[-1]


def _plain(*specs: Any) -> bool:
    return all(not s.weak and s.dtype.name == "float32" for s in specs) and product() != 0


def _at(spec: Any) -> Place:
    return Place(None, 0, spec)  # type: ignore[arg-type]


def takes_matmul(plan: Any) -> bool:
    """Any rows by one matrix."""
    x, y = plan.specs
    if not _plain(x, y, plan.out) or x.ndim < 2 or y.ndim != 2:
        return False
    (m, k), n = _folded(x), y.shape[1]
    seen = _matrix(_at(x), m, k), _matrix(_at(y), k, n)
    return min(m, n, k) > 1 and None not in seen


def matmul(b: Builder, plan: Any, x: Place, y: Place, out: Place) -> None:
    (m, k), n = _folded(x.spec), y.spec.shape[1]
    _multiply(b, (x, _matrix(x, m, k)), (y, _matrix(y, k, n)), out, (m, n, k))


def takes_linear(plan: Any) -> bool:
    """Any rows, with or without a bias."""
    x, w, bias = plan.specs
    if not _plain(x, w, plan.out) or not (bias.weak or (_plain(bias) and bias.contiguous)):
        return False
    (m, k), n = _folded(x), w.shape[0]
    seen = _matrix(_at(x), m, k), _matrix(_at(w), n, k)
    return min(m, n, k) > 1 and None not in seen


def linear(b: Builder, plan: Any, x: Place, w: Place, bias: Any, out: Place) -> None:
    (m, k), n = _folded(x.spec), w.spec.shape[0]
    transposed, leading = _matrix(w, n, k)  # type: ignore[misc]
    _multiply(b, (x, _matrix(x, m, k)), (w, (not transposed, leading)), out, (m, n, k), bias)


def takes_weight(plan: Any) -> bool:
    """Rows that lie one behind the other."""
    g, x = plan.specs
    if not _plain(g, x, *plan.out) or not g.contiguous:
        return False
    (m, n), (_, k) = _folded(g), _folded(x)
    return min(m, n, k) > 1 and _matrix(_at(x), m, k) is not None


def weight(b: Builder, plan: Any, g: Place, x: Place, dw: Place, db: Place) -> None:
    (m, n), (_, k) = _folded(g.spec), _folded(x.spec)
    _multiply(b, (g, (True, n)), (x, _matrix(x, m, k)), dw, (n, k, m))
    step = max(_SUMMED // m // 16 * 16, 16)
    b.add(add_rows, -(-n // step), [g, m, n, step, db], [db], work=m * step)
