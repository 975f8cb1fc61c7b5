"""Random numbers: ``Generator`` and the distributions that draw from one.

Without a ``generator`` the functions draw from ``default_generator``, which starts at seed 0:
a program that never seeds is reproducible.

>>> _ = seed(1)
>>> normal((2,)).shape
(2,)
"""

from __future__ import annotations

from typing import Any

from ruda.ops.generator import Generator, default_generator
from ruda.ops.random import exponential, gamma, normal, truncated_normal, uniform
from ruda.ops.sampling import bernoulli, categorical, integers, permutation
from ruda.tensor.tensor import RudaTensor

__all__ = [
    "Generator",
    "bernoulli",
    "categorical",
    "default_generator",
    "exponential",
    "gamma",
    "integers",
    "manual_seed",
    "multinomial",
    "normal",
    "permutation",
    "rand",
    "randint",
    "randn",
    "randperm",
    "seed",
    "truncated_normal",
    "uniform",
]

randint = integers
randperm = permutation


def seed(value: int) -> Generator:
    """Start the default generator anew from ``value``, an integer from 0 to 2**64 - 1.

    >>> _ = ruda.random.seed(7)
    >>> first = ruda.random.uniform(2).tolist()
    >>> _ = ruda.random.seed(7)
    >>> ruda.random.uniform(2).tolist() == first
    True
    """
    return default_generator.manual_seed(value)


manual_seed = seed


def rand(*shape: Any, **options: Any) -> RudaTensor:
    """``uniform`` on [0, 1) with the shape as separate integers or one tuple.

    >>> rand(2, 3).shape
    (2, 3)
    """
    return uniform(_joined(shape), **options)


def randn(*shape: Any, **options: Any) -> RudaTensor:
    """``normal`` with mean 0 and std 1, the shape as separate integers or one tuple.

    >>> randn(2, 3).shape
    (2, 3)
    """
    return normal(_joined(shape), **options)


def multinomial(
    input: RudaTensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> RudaTensor:
    """``categorical`` on probabilities, without replacement unless asked for.

    >>> multinomial(ruda.asarray([0.0, 1.0, 1.0]), 2).sum().item()
    3
    """
    return categorical(input, num_samples, replacement=replacement, generator=generator)


def _joined(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 else shape
