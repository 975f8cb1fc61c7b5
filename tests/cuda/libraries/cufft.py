"""cuFFT as nvmath-python binds it."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

_KINDS = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}


def numbers(address: int, count: int) -> tuple[int, ...]:
    """64-bit integers at an address of the host."""
    return tuple((ctypes.c_int64 * count).from_address(address))


class Cufft:
    """The functions of ``nvmath.bindings.cufft`` that ruda calls."""

    def __init__(self) -> None:
        self.plans: dict[int, Any] = {}
        self.made = 0

    def create(self) -> int:
        self.made += 1
        self.plans[self.made] = SimpleNamespace(auto=1, area=None, runs=0)
        return self.made

    def destroy(self, plan: int) -> None:
        del self.plans[plan]

    def set_auto_allocation(self, plan: int, auto: int) -> None:
        self.plans[plan].auto = auto

    def set_stream(self, plan: int, stream: int) -> None:
        self.plans[plan].stream = stream

    def set_work_area(self, plan: int, area: int) -> None:
        self.plans[plan].area = area

    def xt_make_plan_many(self, plan: int, rank: int, *given: Any) -> int:
        n, inside, istride, idist, itype, outside, ostride, odist, otype, batch, kind = given
        at = self.plans[plan]
        assert not at.auto
        assert rank <= 3
        at.lengths = numbers(n, rank)
        at.given = (numbers(inside, rank), istride, idist, itype)
        at.result = (numbers(outside, rank), ostride, odist, otype)
        at.batch = batch
        assert kind == max(itype, otype)
        return 48

    @staticmethod
    def _shown(address: int, layout: Any, shape: tuple[int, ...], batch: int) -> np.ndarray:
        sizes, stride, distance, kind = layout
        dtype = np.dtype(_KINDS[kind])
        steps = [stride * math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        extent = distance * (batch - 1) + sum(s * (n - 1) for s, n in zip(steps, shape)) + 1
        flat = np.frombuffer(
            (ctypes.c_byte * (extent * dtype.itemsize)).from_address(address), dtype
        )
        strides = [s * dtype.itemsize for s in (distance, *steps)]
        return np.lib.stride_tricks.as_strided(flat, (batch, *shape), strides)

    def xt_exec(self, plan: int, source: int, target: int, direction: int) -> None:
        at = self.plans[plan]
        assert at.area
        at.runs += 1
        kinds = at.given[3], at.result[3]
        size = np.dtype(_KINDS[max(kinds)]).itemsize
        assert source % size == target % size == 0, "the library wants complex numbers' alignment"
        half = (*at.lengths[:-1], at.lengths[-1] // 2 + 1)
        axes = tuple(range(1, len(at.lengths) + 1))
        inside = half if kinds[1] < 2 else at.lengths
        outside = half if kinds[0] < 2 else at.lengths
        x = self._shown(source, at.given, inside, at.batch)
        out = self._shown(target, at.result, outside, at.batch)
        if kinds[0] < 2:
            out[...] = np.fft.rfftn(x, axes=axes)
        elif kinds[1] < 2:
            assert np.all(x[..., 0].imag == 0), "the library would use the phase at 0"
            out[...] = np.fft.irfftn(x, s=at.lengths, axes=axes, norm="forward")
            x[...] = np.nan
        else:
            way = np.fft.fftn if direction == -1 else np.fft.ifftn
            out[...] = way(x, axes=axes, norm="backward" if direction == -1 else "forward")
