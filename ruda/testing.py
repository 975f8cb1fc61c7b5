"""Checks for operators and functions of tensors: values, gradients of any order, layouts, traces.

``assert_close`` compares values with a tolerance that follows from the dtype, ``gradcheck``
compares gradients with finite differences, ``check_op`` runs all checks that make sense for an
operator, ruda's own or a custom one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import ruda
from ruda.autodiff.engine import walk
from ruda.core.dtypes import as_dtype, finfo
from ruda.core.errors import DTypeError
from ruda.core.mode import enable_grad, no_grad
from ruda.ops.conversion import asarray
from ruda.ops.table import TABLE
from ruda.tensor.tensor import RudaTensor, from_array

# A central difference of step h errs by h² (truncation) and eps/h (rounding): least at eps^(1/3),
# where both are eps^(2/3) = 4e-11 for functions of order one. The factor left over is for their
# third derivatives.
STEP = float(np.finfo(np.float64).eps ** (1 / 3))
GRADIENT_TOLERANCE = 2e4 * STEP**2


def tolerance(dtype: Any, length: int = 1) -> float:
    """The relative error that a correct kernel stays below, as a ratio of norms.

    Four roundings in the output dtype, and one of the accumulator (float32 for half types) for
    each of the ``length`` terms of a sum. Zero for integers and bool.
    """
    dtype = as_dtype(dtype, "tolerance")
    if not dtype.is_inexact:
        return 0.0
    accumulator = finfo(ruda.float32 if dtype.is_half else dtype)
    return 4 * finfo(dtype).eps + length * accumulator.eps


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    length: int = 1,
    scale: float = 0.0,
    name: str = "",
) -> None:
    """Raise ``AssertionError`` unless ``actual`` and ``expected`` agree in shape and value.

    The error is a ratio of norms, ``|actual - expected| / |expected|``, over the finite values; NaN
    must meet NaN and an infinity the same one. ``rtol`` defaults to ``tolerance`` of the dtype of
    ``actual`` and the ``length`` of the sums behind each value. ``scale`` is what ``|expected|``
    counts for at least: the norm of sums whose terms did not cancel.

    >>> assert_close(ruda.asarray([1.0, 2.0]), [1.0, 2.0])
    """
    dtype = actual.dtype if isinstance(actual, RudaTensor) else np.asarray(actual).dtype
    if rtol is None:
        rtol = tolerance(dtype, length)
    got, want = _wide(actual), _wide(expected)
    title = f"{name}: " if name else ""
    if got.shape != want.shape:
        raise AssertionError(f"{title}shapes differ. Got {got.shape}. Expected {want.shape}.")
    finite = np.isfinite(want)
    same = np.array_equal(got[~finite], want[~finite], equal_nan=got.dtype.kind in "fc")
    if not same or not np.isfinite(got[finite]).all():
        _fail(f"{title}NaN or infinity where there should be none, or the reverse", got, want)
    if got.dtype.kind not in "fc":
        if not np.array_equal(got, want):
            _fail(f"{title}values differ", got, want)
        return
    error, size = _norm(got[finite] - want[finite]), max(_norm(want[finite]), scale)
    if error > rtol * size:
        ratio = error / size if size else np.inf
        _fail(f"{title}error {ratio:.3g} is over {rtol:.3g} ({dtype})", got, want)


def _wide(value: Any) -> Any:
    """``value`` as an ndarray in which comparing loses nothing."""
    array = value.numpy() if isinstance(value, RudaTensor) else np.asarray(value)
    kind = as_dtype(array.dtype, "assert_close").kind
    if kind == "complex":
        return array.astype(np.complex128)
    return array.astype(np.float64) if kind in ("float", "storage") else array


def _norm(values: Any) -> float:
    # Scaled, since squares of small or large values leave the range.
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest * float(np.sqrt(np.sum(np.abs(values / largest) ** 2)))


def _fail(what: str, got: Any, want: Any) -> None:
    """Raise with the element that is furthest off."""
    with np.errstate(invalid="ignore"):
        wide = np.complex128 if got.dtype.kind == "c" or want.dtype.kind == "c" else np.float64
        gap = np.abs(got.astype(wide) - want.astype(wide))
    same = (got == want) | ((got != got) & (want != want))
    gap = np.where(same, 0.0, np.nan_to_num(gap, nan=np.inf))
    place = np.unravel_index(int(np.argmax(gap)), gap.shape)
    where = f"at {tuple(int(i) for i in place)}" if place else "in the one value"
    share = f"{int(np.sum(~same))} of {got.size} differ, most {where}"
    raise AssertionError(f"{what}: {share}. Got {got[place]}. Expected {want[place]}.")


def gradcheck(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    order: int = 2,
    rtol: float = GRADIENT_TOLERANCE,
    seed: int = 0,
) -> None:
    """Compare gradients of ``function`` at ``inputs`` with central differences, up to ``order``.

    Inputs of dtype float64 and complex128 (tensors or arrays) are moved along one random direction,
    complex ones in both parts; all others are passed on as they are. Order 2 checks the gradient as
    a function of inputs and cotangents in the same way, and so on. Raises ``AssertionError`` with
    function, input, what was got and expected; ``DTypeError`` for inputs of less precision.

    >>> gradcheck(lambda x: x * x, [ruda.ones(3, dtype="float64")])
    """
    rng = np.random.default_rng(seed)
    values = [_checked(x) for x in inputs]
    name = getattr(function, "__name__", repr(function))
    for level in range(1, order + 1):
        seeds = _check_gradient(function, values, rng, rtol, f"{name}: gradient of order {level}")
        function, values = _pulled(function, len(values)), [*values, *seeds]


def _checked(x: Any) -> Any:
    """``x`` as an ndarray if it is to be moved, else as it is."""
    if not isinstance(x, RudaTensor | np.ndarray):
        return x
    dtype = as_dtype(x.dtype, "gradcheck")
    if not dtype.is_inexact:
        return x
    if finfo(dtype).bits != 64:
        expected = "float64 or complex128"
        raise DTypeError("gradcheck", "too few digits for differences", dtype, expected)
    return x.numpy(copy=True) if isinstance(x, RudaTensor) else x


def _moves(x: Any) -> bool:
    return _is_array(x) and x.dtype.kind in "fc"


def _leaf(x: Any) -> Any:
    return from_array(x.copy()).requires_grad_() if _moves(x) else x


def _outputs(result: Any) -> list[RudaTensor]:
    """The outputs that can have a gradient."""
    parts = result if isinstance(result, tuple | list) else (result,)
    return [t for t in parts if t is not None and t.dtype.is_inexact]


def _random(like: Any, rng: Any) -> Any:
    out = rng.standard_normal(like.shape)
    if as_dtype(like.dtype, "gradcheck").kind == "complex":
        out = out + 1j * rng.standard_normal(like.shape)
    return np.asarray(out)


def pull(
    outputs: Sequence[RudaTensor],
    seeds: Sequence[RudaTensor],
    inputs: Sequence[Any],
    create_graph: bool,
) -> list[Any]:
    """The gradient of each input, None where there is none; differentiable by ``create_graph``."""
    nodes = [x.node if isinstance(x, RudaTensor) else None for x in inputs]
    roots = [(t.node, s) for t, s in zip(outputs, seeds, strict=True) if t.node is not None]
    found: dict[Any, Any] = {}
    walk(roots, found.__setitem__, {n for n in nodes if n is not None}, create_graph, create_graph)
    return [None if node is None else found.get(node) for node in nodes]


def _pulled(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradients of ``function`` as a function of its inputs and of the cotangents."""

    def gradient(*values: Any) -> list[Any]:
        inputs, seeds = values[:count], values[count:]
        with enable_grad():
            # A node of its own for each input: the walk then stops here and not at the leaf.
            fresh = [_fresh(x) for x in inputs]
            outputs = _outputs(function(*fresh))
            gradients = pull(outputs, seeds, fresh, create_graph=True)
        return [g for g in gradients if g is not None]

    return gradient


def _fresh(x: Any) -> Any:
    if not isinstance(x, RudaTensor) or not x.dtype.is_inexact:
        return x
    return x.reshape(x.shape) if x.requires_grad else x.detach().requires_grad_()


def _check_gradient(
    function: Callable[..., Any], values: list[Any], rng: Any, rtol: float, title: str
) -> list[Any]:
    """Check one order; returns the cotangents, which become inputs of the next."""
    leaves = [_leaf(x) for x in values]
    outputs = _outputs(function(*leaves))
    seeds = [_random(t, rng) for t in outputs]
    gradients = pull(outputs, [asarray(s) for s in seeds], leaves, create_graph=False)
    directions = [_random(x, rng) if _moves(x) else None for x in values]
    for i, (x, g) in enumerate(zip(values, gradients, strict=True)):
        if directions[i] is None:
            continue
        if g is not None and (g.shape != x.shape or g.dtype != x.dtype):
            raise AssertionError(f"{title}, input {i}: Got {g.spec}. Expected {x.dtype}{x.shape}.")
        slopes = _slopes(function, values, i, directions[i])
        got = 0.0 if g is None else _inner(g.numpy(), directions[i])
        want = sum(_inner(s, d) for s, d in zip(seeds, slopes, strict=True))
        scale = sum(_norm(s) * _norm(d) for s, d in zip(seeds, slopes, strict=True))
        if not abs(got - want) <= rtol * max(1.0, scale):
            shapes = [v.shape if _moves(v) else v for v in values]
            what = f"{title}, input {i} of {shapes}"
            raise AssertionError(f"{what}: Got {got!r}. Expected {want!r}.")
    return seeds


def _slopes(function: Callable[..., Any], values: list[Any], i: int, direction: Any) -> list[Any]:
    """The derivative of each output along ``direction`` of input ``i``."""
    ends = []
    for sign in (1, -1):
        moved = [*values]
        moved[i] = np.asarray(values[i] + sign * STEP * direction)
        with no_grad():
            outputs = _outputs(function(*[from_array(v) if _moves(v) else v for v in moved]))
        ends.append([t.numpy() for t in outputs])
    return [(high - low) / (2 * STEP) for high, low in zip(*ends, strict=True)]


def _inner(a: Any, b: Any) -> float:
    """The inner product of real numbers and, part by part, of complex ones."""
    return float(np.sum((np.conj(a) * b).real))


def layouts(array: Any) -> Iterator[tuple[str, Any]]:
    """The values of ``array`` in other memory layouts, each with its name."""
    if array.ndim == 0 or array.size == 0:
        return
    if array.ndim > 1:
        yield "transposed", np.asfortranarray(array)
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[..., 1::2] = array
    yield "sliced", wide[..., 1::2]
    yield "negative strides", np.flip(np.flip(array).copy())


def check_op(
    function: Callable[..., Any] | str, *samples: Sequence[Any], order: int = 2, length: int = 1
) -> None:
    """Run all checks of an operator on ``samples``, each the arguments of one call.

    ``function`` is an operator, a function of tensors or the name of a row. Checked are the
    gradient up to ``order`` (0: none), that strided arguments give what dense ones give, and that
    arguments are left as they were. Raises ``AssertionError`` with what was got and expected.

    >>> check_op(ruda.multiply, (ruda.ones(3, dtype="float64"), 2.0))
    """
    call = TABLE[function].call if isinstance(function, str) else function
    for sample in samples:
        arguments = [x.numpy(copy=True) if isinstance(x, RudaTensor) else x for x in sample]
        _check_layouts(call, arguments, length)
        if order:
            gradcheck(call, arguments, order=order)


def _check_layouts(call: Callable[..., Any], arguments: list[Any], length: int) -> None:
    name = getattr(call, "__name__", repr(call))
    expected = _parts(call(*[_tensor(x.copy()) if _is_array(x) else x for x in arguments]))
    for i, x in enumerate(arguments):
        for layout, array in layouts(x) if _is_array(x) else ():
            before = array.copy()
            changed = [*arguments[:i], array, *arguments[i + 1 :]]
            title = f"{name} with input {i} {layout}"
            for got, want in zip(_parts(call(*map(_tensor, changed))), expected, strict=True):
                assert_close(got, want, name=title, length=length)
            assert np.array_equal(array, before, equal_nan=array.dtype.kind in "fc"), (
                f"{title}: the input was changed"
            )


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def _tensor(x: Any) -> Any:
    return asarray(x) if _is_array(x) else x


def _parts(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple | list) else (result,)
