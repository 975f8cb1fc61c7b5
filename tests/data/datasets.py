"""Datasets and functions that worker processes can import."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

import ruda
from ruda.data import collate, generator


class Augmented:
    """Sample i: i, where it was made, and a draw of ruda and one of the rest of its stream."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        # Samples that take different times come back out of order, unless somebody sorts them.
        time.sleep(0.001 * (index % 3))
        noise = ruda.random.normal((2,), generator=generator())
        again = ruda.random.integers(1000, shape=(), generator=generator())
        return {"index": index, "noise": noise, "again": again}


def masked(samples: list[Any]) -> dict[str, Any]:
    """A ``collate`` that draws."""
    batch = collate(samples)
    mask = ruda.random.uniform((len(samples),), generator=generator(), device="cpu")
    return batch | {"mask": mask}


class Typed:
    """Samples of every kind of array; large ones, strings and None too."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        half = ruda.full((3,), index, dtype="bfloat16")
        eight = ruda.full((3,), index, dtype="float8_e4m3")
        large = np.full((64, 64), index, np.float64)
        return {"half": half, "eight": eight, "large": large, "name": f"{index}", "none": None}

    def batch(self, indices: Any) -> dict[str, Any]:
        """Empty and transposed tensors beside what ``collate`` makes."""
        batch = collate([self[int(i)] for i in indices])
        return batch | {"empty": ruda.zeros((0, 3)), "turned": batch["large"].mT}


class TwoArguments(Exception):
    """An exception that pickles, but cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class Failing:
    """Sample 5 fails as ``how`` says."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            return self.fail()
        return index

    def fail(self) -> Any:
        if self.how == "exit":
            sys.stdout.flush()
            os._exit(3)
        if self.how == "unpicklable":
            return [lambda: 0]
        if self.how == "odd":
            raise TwoArguments("one", "two")
        raise ValueError("no such picture")


class Refusing:
    """Cannot be unpickled."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return index

    def __reduce__(self) -> Any:
        return refuse, ()


def refuse() -> Any:
    raise ValueError("not in this process")


class Kept:
    """A ``collate`` that leaves samples as they are."""

    def __call__(self, samples: list[Any]) -> Any:
        return samples


class Facts:
    """Where a sample is made."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        device = str(ruda.ones(2).device)
        return os.getpid(), device, os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
