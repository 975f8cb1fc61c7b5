"""Matrix products by cuBLASLt, through nvmath-python's bindings.

cuBLASLt counts columns first, so a row-major product is the product of the operands swapped. All
descriptors are made with the plan; a call stores nothing but the addresses. Which algorithm runs
depends on how the addresses are aligned: one is looked up for each alignment that occurs.

Scratch memory belongs to a stream, whose work runs in order. A graph may run in any stream, beside
another one that was captured in the same: what it holds has scratch memory of its own pool.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.cuda.bindings import binding
from ruda.backends.cuda.blas import tune
from ruda.backends.cuda.blas.layout import Call, Geometry, Side
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import uint8
from ruda.core.errors import StrategyError
from ruda.core.spec import spec_of

# cudaDataType_t.
KINDS = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "int8": 3,
    "complex64": 4,
    "complex128": 5,
    "int32": 10,
    "bfloat16": 14,
}
_WORKSPACE = 32 << 20
_CANDIDATES = 8
# How many addresses of a bias have descriptors of their own, for each product.
_BIASES = 512
_TRANSA, _TRANSB, _EPILOGUE, _BIAS, _BIAS_TYPE = 3, 4, 7, 8, 26
_AUX, _AUX_LEADING = 11, 12
_BATCH, _BATCH_STEP = 5, 6
_MOST_WORKSPACE, _REDUCTION = 1, 3
_ALIGNMENTS = (5, 6, 7, 8)
_PLAIN = 1
# Of an algorithm: the cublasLtMatmulTile_t and the cublasLtClusterShape_t.
_TILE, _CLUSTER = (1, np.uint32), (8, np.uint16)
# Partial sums may be added in the type that they are computed in, or also in that of the result.
_EXACT_SUMS, _ANY_SUMS = 2, 7


# Kernels of the library by tile and cluster, best first.
Kernels = tuple[tuple[int, int], ...]


class Ends(NamedTuple):
    """What a product does beside multiplying.

    ``bias`` adds a row to every row; ``adds`` keeps what the result holds and adds to it. ``then``:
    "relu" (what is below 0 becomes 0 and NaN stays), "gelu" by tanh, "gelu and input", which also
    writes what it is of, both behind a bias, or "gelu gradient", which reads that again and has no
    bias.
    """

    bias: bool = False
    adds: bool = False
    then: str = ""

    @property
    def epilogue(self) -> int:
        """The cublasLtEpilogue_t."""
        return _EPILOGUES[self.bias, self.then]

    @property
    def has_aux(self) -> bool:
        """Whether there is one more matrix of the shape of the result."""
        return self.then in ("gelu and input", "gelu gradient")


_EPILOGUES = {
    (False, ""): _PLAIN,
    (True, ""): 4,
    (True, "relu"): 6,
    (True, "gelu"): 36,
    (True, "gelu and input"): 164,
    (False, "gelu gradient"): 192,
}


class Arithmetic(NamedTuple):
    """The dtypes of operands and result, and how it is computed: names of cuBLAS' own types.

    ``compute`` is a cublasComputeType_t, ``scale`` the ndarray dtype of alpha and beta, and
    ``rounds`` whether partial sums may be rounded to the result's dtype.
    """

    operand: str
    result: str
    compute: int
    scale: str
    rounds: bool


class Library:
    """cuBLASLt of one client: its handle, and the scratch memory of each stream."""

    def __init__(self, client: Any, module: Any) -> None:
        self.client = client
        self.module = module
        # A handle is of the device that is current when it is made.
        client.driver.activate()
        self.handle = module.create()
        self.version = int(module.get_version())
        self.workspaces: dict[int, int] = {}
        # What was asked before: whether there is an algorithm.
        self.offered: dict[Any, bool] = {}

    def workspace(self, stream: int) -> int:
        """The address of the scratch memory of ``stream``, which stays its own."""
        found = self.workspaces.get(stream)
        if found is None:
            found = self.workspaces[stream] = self.client.driver.allocate(_WORKSPACE)
        return found


@functools.cache
def library(client: Any) -> Library | None:
    """cuBLASLt for ``client``, None where nvmath-python is not installed."""
    try:
        module = binding("cublasLt")
    except ImportError:
        return None
    return Library(client, module)


class _Descriptors:
    """What cuBLASLt wants to know of one call besides addresses; owns the library's objects."""

    def __init__(
        self, cublaslt: Any, how: Arithmetic, shape: Geometry, call: Call, ends: Ends
    ) -> None:
        self._lt = cublaslt
        self._made: list[tuple[Callable[[int], None], int]] = []
        # At exit the bindings are taken apart before the plans are: nothing is destroyed then.
        weakref.finalize(self, _destroy, self._made).atexit = False
        scale = np.dtype(how.scale)
        self.operation = self._keep(
            cublaslt.matmul_desc_destroy, cublaslt.matmul_desc_create(how.compute, KINDS[how.scale])
        )
        self._set(_TRANSA, int(shape.y.transposed), np.int32)
        self._set(_TRANSB, int(shape.x.transposed), np.int32)
        if ends.epilogue != _PLAIN:
            self._set(_EPILOGUE, ends.epilogue, np.uint32)
        if ends.bias:
            self._set(_BIAS_TYPE, KINDS[how.result], np.int32)
        if ends.has_aux:
            self._set(_AUX_LEADING, shape.n, np.int64)
        m, n, k = shape.m, shape.n, shape.k
        kind, (sx, sy, so) = KINDS[how.operand], shape.steps
        self.y = self._matrix(kind, shape.y, (n, k), call.count, sy)
        self.x = self._matrix(kind, shape.x, (k, m), call.count, sx)
        self.out = self._matrix(KINDS[how.result], Side(False, n), (n, m), call.count, so)
        self._factors = np.array([1, 1 if ends.adds else 0], scale)
        self.one = self._factors.ctypes.data
        self.beta = self.one + scale.itemsize
        self._bias = np.zeros(1, np.int64)
        self._bias_at = self._bias.ctypes.data

    def _keep(self, destroy: Callable[[int], None], number: int) -> int:
        self._made.append((destroy, number))
        return number

    def _set(self, attribute: int, value: int, kind: Any) -> None:
        box = np.array([value], kind)
        self._lt.matmul_desc_set_attribute(self.operation, attribute, box.ctypes.data, box.itemsize)

    def _matrix(self, kind: int, side: Side, shape: tuple[int, int], count: int, step: int) -> int:
        """A layout in columns; ``shape`` is what the product sees of it."""
        cublaslt = self._lt
        rows, columns = shape[::-1] if side.transposed else shape
        layout = self._keep(
            cublaslt.matrix_layout_destroy,
            cublaslt.matrix_layout_create(kind, rows, columns, side.leading),
        )
        if count > 1:
            for attribute, box in (
                (_BATCH, np.array([count], np.int32)),
                (_BATCH_STEP, np.array([step], np.int64)),
            ):
                cublaslt.matrix_layout_set_attribute(
                    layout, attribute, box.ctypes.data, box.itemsize
                )
        return layout

    def point(self, bias: int, aux: int) -> None:
        """Say where the bias lies, and the matrix beside the result; 0 for what there is not."""
        for attribute, address in ((_BIAS, bias), (_AUX, aux)):
            if address:
                self._bias[0] = address
                self._lt.matmul_desc_set_attribute(self.operation, attribute, self._bias_at, 8)


def _destroy(made: list[tuple[Callable[[int], None], int]]) -> None:
    for destroy, number in made:
        destroy(number)


def _algorithms(library: Library, at: _Descriptors, how: Arithmetic, low: int) -> Any:
    """What the library proposes for addresses that are multiples of ``low``, best first."""
    cublaslt = library.module
    preference = cublaslt.matmul_preference_create()
    sums = _ANY_SUMS if how.rounds else _EXACT_SUMS
    boxes: list[tuple[int, Any]] = [
        (_MOST_WORKSPACE, np.array([_WORKSPACE], np.uint64)),
        (_REDUCTION, np.array([sums], np.uint32)),
        *((attribute, np.array([low], np.uint32)) for attribute in _ALIGNMENTS),
    ]
    found = np.zeros(_CANDIDATES, cublaslt.matmul_heuristic_result_dtype)
    count = np.zeros(1, np.int32)
    try:
        for attribute, box in boxes:
            cublaslt.matmul_preference_set_attribute(
                preference, attribute, box.ctypes.data, box.itemsize
            )
        cublaslt.matmul_algo_get_heuristic(
            library.handle, at.operation, at.y, at.x, at.out, at.out,
            preference, _CANDIDATES, found.ctypes.data, count.ctypes.data,
        )  # fmt: skip
    finally:
        cublaslt.matmul_preference_destroy(preference)
    found = found[: int(count[0])]
    return found[found["state"] == 0]


def _ranked(library: Library, found: Any, kernels: Kernels) -> Any:
    """The same proposals, with the one of the kernel that is named first in front."""
    cublaslt, codes = library.module, np.ascontiguousarray(found["algo"]["data_"])

    def value(i: int, attribute: int, kind: Any) -> int:
        box, at = np.zeros(1, kind), codes.ctypes.data + i * codes.strides[0]
        written = np.zeros(1, np.uint64)
        cublaslt.matmul_algo_config_get_attribute(
            at, attribute, box.ctypes.data, box.itemsize, written.ctypes.data
        )
        return int(box[0])

    known = [(value(i, *_TILE), value(i, *_CLUSTER)) for i in range(len(codes))]
    best = next((known.index(kernel) for kernel in kernels if kernel in known), 0)
    return found[[best, *(i for i in range(len(codes)) if i != best)]]


class _Product:
    """One call of the library, with the algorithms that were found so far by alignment."""

    def __init__(
        self,
        library: Library,
        how: Arithmetic,
        shape: Geometry,
        call: Call,
        ends: Ends,
        kernels: Kernels = (),
    ) -> None:
        self.library, self.how, self.shape, self.call = library, how, shape, call
        self.ends, self.kernels = ends, kernels
        self._matmul, self._handle = library.module.matmul, library.handle
        self._now, self._rooms = library.client.now, library.workspaces
        self._order = library.client.order
        # By the addresses that a descriptor holds, of the bias and the matrix beside the result.
        self.pointed: dict[tuple[int, int], _Descriptors] = {}
        self._at(0, 0)
        # By alignment: the address of an algorithm, and the spec of the scratch memory it wants.
        self.algorithms: dict[int, tuple[int, Any]] = {}
        self._kept: list[Any] = []

    def _at(self, bias: int, aux: int) -> _Descriptors:
        """The descriptors for a bias, made on first sight: what is never changed, threads share."""
        if len(self.pointed) >= _BIASES:
            self.pointed.clear()
        made = self.pointed.pop((0, 0), None) if bias or aux else None
        if made is None:
            cublaslt = self.library.module
            made = _Descriptors(cublaslt, self.how, self.shape, self.call, self.ends)
        made.point(bias, aux)
        return self.pointed.setdefault((bias, aux), made)

    def __call__(self, x: int, y: int, out: int, bias: int = 0, aux: int = 0) -> None:
        """Queue it with these addresses."""
        if self._order.crowded:
            self.library.client.driver.activate()
        at = self.pointed.get((bias, aux)) or self._at(bias, aux)
        joint = (x | y | out | bias | aux) & 255
        known = self.algorithms.get(joint)
        if known is None:
            known = self.algorithms[joint] = self._choose(at, joint, (x, y, out))
        algorithm, wanted = known
        stream, size = self._now.stream, _WORKSPACE
        if not self._order.planned:
            room = self._rooms.get(stream) or self.library.workspace(stream)
        else:
            # Back in the graph's pool once the call is queued: what follows is behind it.
            size = wanted.size
            held = allocate(self.library.client.pool, wanted) if size else None
            room = 0 if held is None else held.address
            if self._order.rehearsed:
                return
        self._matmul(
            self._handle, at.operation, at.one, y, at.y, x, at.x, at.beta, out, at.out,
            out, at.out, algorithm, room, size, stream,
        )  # fmt: skip

    def _try(self, at: _Descriptors, algorithm: int, x: int, y: int, out: int) -> None:
        stream = self._now.stream
        self._matmul(
            self._handle, at.operation, at.one, y, at.y, x, at.x, at.beta, out, at.out,
            out, at.out, algorithm, self.library.workspace(stream), _WORKSPACE, stream,
        )  # fmt: skip

    def _choose(
        self, at: _Descriptors, joint: int, places: tuple[int, int, int]
    ) -> tuple[int, Any]:
        """The algorithm for these addresses, which stays alive with this call, and its room."""
        low = joint & -joint if joint else 256
        found = _algorithms(self.library, at, self.how, low)
        if not len(found):
            what = "cuBLASLt has no algorithm for these dtypes and this alignment"
            raise StrategyError("matmul", what, f"{self.how} at multiples of {low} bytes")
        if self.kernels:
            found = _ranked(self.library, found, self.kernels)
        codes = np.ascontiguousarray(found["algo"]["data_"])
        self._kept.append(codes)
        addresses = [codes.ctypes.data + i * codes.strides[0] for i in range(len(codes))]
        client = self.library.client
        rooms = [spec_of(client, (int(n),), uint8) for n in found["workspace_size"]]
        # A product that adds to its result cannot be tried twice.
        if self.ends.adds:
            return addresses[0], rooms[0]
        then: tuple[Any, ...] = (self.ends.then,) * bool(self.ends.then)
        then += self.kernels
        key = repr((*self.how, *self.shape, self.call.count, low, self.ends.bias, *then))
        trials = [functools.partial(self._try, at, a, *places) for a in addresses]
        best = tune.best(client, f"cublaslt-{self.library.version}", key, trials)
        return addresses[best], rooms[best]


def product(
    client: Any,
    how: Arithmetic,
    shape: Geometry,
    bias: bool = False,
    adds: bool = False,
    relu: bool = False,
    ends: Ends | None = None,
    kernels: Kernels = (),
) -> Callable[..., None]:
    """The function that queues ``out = x @ y`` at the addresses (x, y, out[, bias[, aux]]).

    ``bias``, ``adds`` and ``relu`` are short for ``ends``. Of the ``kernels`` the first one that is
    proposed comes before what the library would take.
    """
    found = library(client)
    assert found is not None
    ends = ends or Ends(bias, adds, "relu" if relu else "")
    calls = [_Product(found, how, shape, call, ends, kernels) for call in shape.calls]
    if len(calls) == 1:
        return calls[0]
    operand, result = (np.dtype(_WIDTH[name]).itemsize for name in (how.operand, how.result))
    starts = [(c.x * operand, c.y * operand, c.out * result) for c in shape.calls]

    def run(x: int, y: int, out: int, *rest: int) -> None:
        for call, (dx, dy, do) in zip(calls, starts, strict=True):
            call(x + dx, y + dy, out + do, *rest)

    return run


_WIDTH = {"bfloat16": "float16", **{name: name for name in KINDS if name != "bfloat16"}}


def offers(client: Any, how: Arithmetic, shape: Geometry, ends: Ends) -> bool:
    """Whether the library has an algorithm for aligned addresses: it is asked, nothing runs."""
    found = library(client)
    if found is None or not shape.is_single:
        return False
    key = how, shape, ends
    known = found.offered.get(key)
    if known is None:
        client.driver.activate()
        at = _Descriptors(found.module, how, shape, shape.calls[0], ends)
        at.point(256 * ends.bias, 256 * ends.has_aux)
        known = found.offered[key] = bool(len(_algorithms(found, at, how, 256)))
    return known
