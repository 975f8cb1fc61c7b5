"""cuBLASLt as nvmath-python binds it."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from ruda.ops.reference import smooth as reference

KINDS: dict[int, Any] = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    3: np.int8,
    4: np.complex64,
    5: np.complex128,
    10: np.int32,
    14: ml_dtypes.bfloat16,
}
_DESCRIPTION = {3: ("transa", np.int32), 4: ("transb", np.int32), 7: ("epilogue", np.uint32)}
_DESCRIPTION |= {8: ("bias", np.int64), 26: ("bias_kind", np.int32)}
_DESCRIPTION |= {11: ("aux", np.int64), 12: ("aux_leading", np.int64)}
# What adds a bias, what has a gelu, and what has a matrix beside the result.
_BIASED, _GELU, _AUX, _GRADIENT = (4, 6, 36, 164), (36, 164), (164, 192), 192
_LAYOUT = {5: ("count", np.int32), 6: ("step", np.int64)}
_PREFERENCE = {1: ("workspace", np.uint64), 3: ("sums", np.uint32)}
_PREFERENCE |= {i: (f"align{i}", np.uint32) for i in (5, 6, 7, 8)}


def matrix(
    address: int, kind: int, rows: int, columns: int, leading: int, count: int = 1, step: int = 0
) -> np.ndarray:
    """A batch of column-major matrices at an address: [count, rows, columns]."""
    assert leading >= rows, f"leading dimension {leading} of {rows} rows"
    dtype = np.dtype(KINDS[kind])
    assert address % dtype.itemsize == 0
    extent = step * (count - 1) + leading * (columns - 1) + rows
    room = (ctypes.c_byte * (extent * dtype.itemsize)).from_address(address)
    flat = np.frombuffer(room, dtype)
    strides = [s * dtype.itemsize for s in (step, 1, leading)]
    return np.lib.stride_tricks.as_strided(flat, (count, rows, columns), strides)


def wide(x: np.ndarray) -> np.ndarray:
    """In a dtype that products are exact enough in."""
    if x.dtype.kind == "i":
        return x.astype(np.int64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def multiplied(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The product of two batches."""
    return np.matmul(wide(x), wide(y))


class CublasLt:
    """The functions of ``nvmath.bindings.cublasLt`` that ruda calls."""

    matmul_heuristic_result_dtype = np.dtype(
        [
            ("algo", [("data_", "<u8", (8,))]),
            ("workspace_size", "<u8"),
            ("state", "<i4"),
            ("waves_count", "<f4"),
            ("reserved", "<i4", (4,)),
        ]
    )

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.numbers = itertools.count(1)
        self.calls: list[SimpleNamespace] = []
        self.preferences: list[SimpleNamespace] = []

    def create(self) -> int:
        return 77

    def get_version(self) -> int:
        return 130000

    def _new(self, **fields: Any) -> int:
        number = next(self.numbers)
        self.objects[number] = SimpleNamespace(**fields)
        return number

    def _set(self, number: int, known: Any, attribute: int, buffer: int, size: int) -> None:
        name, kind = known[attribute]
        assert size == np.dtype(kind).itemsize, f"{name}: {size} bytes"
        value = np.frombuffer((ctypes.c_byte * size).from_address(buffer), kind)[0]
        setattr(self.objects[number], name, value.item())

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new(
            compute=compute,
            scale=scale,
            transa=0,
            transb=0,
            epilogue=1,
            bias=0,
            bias_kind=-1,
            aux=0,
            aux_leading=0,
        )

    def matmul_desc_set_attribute(self, number: int, attribute: int, at: int, size: int) -> None:
        self._set(number, _DESCRIPTION, attribute, at, size)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        return self._new(kind=kind, rows=rows, columns=columns, leading=leading, count=1, step=0)

    def matrix_layout_set_attribute(self, number: int, attribute: int, at: int, size: int) -> None:
        self._set(number, _LAYOUT, attribute, at, size)

    def matmul_preference_create(self) -> int:
        return self._new()

    def matmul_preference_set_attribute(
        self, number: int, attribute: int, at: int, size: int
    ) -> None:
        self._set(number, _PREFERENCE, attribute, at, size)

    def matmul_preference_destroy(self, number: int) -> None:
        self.preferences.append(self.objects.pop(number))

    def matmul_desc_destroy(self, number: int) -> None:
        del self.objects[number]

    matrix_layout_destroy = matmul_desc_destroy

    def matmul_algo_get_heuristic(self, *given: int) -> None:
        *_, asked, results, count = given
        size = self.matmul_heuristic_result_dtype.itemsize * asked
        room = (ctypes.c_byte * size).from_address(results)
        found = np.frombuffer(room, self.matmul_heuristic_result_dtype)
        found["algo"]["data_"][:] = np.arange(asked)[:, None] + 100
        found["workspace_size"] = 1 << 20
        ctypes.c_int32.from_address(count).value = asked

    def matmul_algo_config_get_attribute(
        self, algorithm: int, attribute: int, at: int, size: int, written: int
    ) -> None:
        """Tiles count from 100, and all clusters are alike."""
        kind, number = {1: (np.uint32, -1), 8: (np.uint16, 3)}[attribute]
        assert size == np.dtype(kind).itemsize
        value = number if number > 0 else ctypes.c_uint64.from_address(algorithm).value
        np.frombuffer((ctypes.c_byte * size).from_address(at), kind)[0] = value
        ctypes.c_uint64.from_address(written).value = size

    def matmul(self, handle: int, *given: int) -> None:
        operation, alpha, a, a_at, b, b_at, beta, c, c_at, d, d_at, algorithm, *rest = given
        assert handle == 77
        assert ctypes.c_uint64.from_address(algorithm).value >= 100
        how = self.objects[operation]
        x, y, out = (self.objects[n] for n in (a_at, b_at, d_at))
        assert (c, c_at) == (d, d_at)
        code = ctypes.c_uint64.from_address(algorithm).value
        self.calls.append(SimpleNamespace(how=how, a=x, b=y, d=out, rest=rest, code=code))
        factors = [self._scalar(at, how.scale) for at in (alpha, beta)]
        left, right = self._operand(a, x, how.transa), self._operand(b, y, how.transb)
        result = matrix(d, *self._facts(out))
        product = factors[0] * multiplied(left, right)
        if factors[1]:
            product = product + factors[1] * wide(result)
        if how.epilogue in _BIASED:
            assert how.bias_kind == out.kind
            product = product + wide(matrix(how.bias, out.kind, out.rows, 1, out.rows))
        if how.epilogue == 6:
            product = np.maximum(product, 0)
        if how.epilogue in _AUX:
            assert how.aux_leading % 8 == 0 and how.aux % 16 == 0
            aux = matrix(how.aux, out.kind, out.rows, out.columns, how.aux_leading)
            if how.epilogue == _GRADIENT:
                product = reference.gelu_tanh_backward(product, wide(aux))
            else:
                aux[...] = product.astype(aux.dtype)
        if how.epilogue in _GELU:
            product = reference.gelu_tanh(product)
        assert product.shape == result.shape
        result[...] = product.astype(result.dtype)

    @staticmethod
    def _scalar(at: int, kind: int) -> Any:
        return matrix(at, kind, 1, 1, 1)[0, 0, 0].item()

    @staticmethod
    def _facts(at: Any) -> tuple[int, ...]:
        return at.kind, at.rows, at.columns, at.leading, at.count, at.step

    def _operand(self, address: int, at: Any, transposed: int) -> np.ndarray:
        found = matrix(address, *self._facts(at))
        return found.transpose(0, 2, 1) if transposed else found
