"""cuRAND as nvmath-python binds it: other numbers, and the same rules for places in the stream."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


class Curand:
    """The functions of ``nvmath.bindings.curand`` that ruda calls."""

    def __init__(self) -> None:
        self.seed = self.offset = self.stream = 0

    def create_generator(self, kind: int) -> int:
        assert kind == 161
        return 88

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle == 88
        self.stream = stream

    def set_pseudo_random_generator_seed(self, handle: int, seed: int) -> None:
        self.seed = seed

    def set_generator_offset(self, handle: int, offset: int) -> None:
        assert 0 <= offset < 1 << 64
        self.offset = offset

    def generate(self, handle: int, address: int, n: int) -> None:
        self._room(address, n, np.uint32)[...] = self._rng().integers(0, 1 << 32, n, np.uint32)

    def generate_uniform(self, handle: int, address: int, n: int, kind: Any = np.float32) -> None:
        room = self._room(address, n, kind)
        # Both ends of the interval (0, 1] are met.
        room[...] = np.float32(1) - self._rng().random(n, kind)
        room[: 2 * (n > 1)] = [1, 2**-33][: 2 * (n > 1)]

    def generate_uniform_double(self, handle: int, address: int, n: int) -> None:
        self.generate_uniform(handle, address, n, np.float64)

    def generate_normal(
        self, handle: int, address: int, n: int, mean: float, std: float, kind: Any = np.float32
    ) -> None:
        assert n % 2 == 0
        self._room(address, n, kind)[...] = self._rng().standard_normal(n, kind) * std + mean

    def generate_normal_double(
        self, handle: int, address: int, n: int, mean: float, std: float
    ) -> None:
        self.generate_normal(handle, address, n, mean, std, np.float64)

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.offset])

    @staticmethod
    def _room(address: int, n: int, kind: Any) -> np.ndarray:
        size = np.dtype(kind).itemsize * n
        return np.frombuffer((ctypes.c_byte * size).from_address(address), kind)
