"""Random rows: each thread encrypts the Philox blocks of its own elements, nothing is shared.

Seed and draw number go in two slots by value, and so do the parameters, as raw bits of the type
that is computed in. They follow from what the reference computes on the host, and so do the bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda import source
from ruda.backends.cuda.faults import Domain
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, compute_of, float32, float64, uint64
from ruda.core.spec import Spec, spec_of
from ruda.ops.reference import random as continuous

THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 16
_SLOTS = 12
_PARAMETERS = 7

Raw = tuple[int, ...]


def text(maker: str, out: DType, data: DType | None = None) -> tuple[str, str]:
    """Name and source of the kernel that fills ``out`` by ``maker``, with a parameter in memory."""
    real = compute_of(out) if out.is_floating else float32
    suffix = f"_{code_of(data)}" if data is not None else ""
    name = f"random_{maker.lower().strip('>').replace('<', '_')}_{code_of(out)}{suffix}"
    whole = {
        "NAME": name,
        "STORED": stored(out),
        "DATA": stored(data or float32),
        "MAKER": maker_of(maker, computed(real)),
        "CHECKED": int(data is not None),
    }
    return name, source.instance(__file__, **whole)


_DENSE = ("Uniform", "Normal", "Exponential", "Below", "Bernoulli", "Keys", "Gumbel")


def maker_of(maker: str, real: str) -> str:
    """The C class of a maker: what proposes is asked until it accepts."""
    return f"{'Dense' if maker in _DENSE else 'Accepted'}<{maker}<{real}>>"


def launcher(
    client: Any, out: Spec, maker: str, data: DType | None = None, domain: Domain | None = None
) -> Callable[..., Any]:
    """A function of (seed, draw, raw parameters, address of a parameter in memory) to a handle.

    ``domain`` is that of the parameter in memory, of the shape of ``out``.
    """
    if out.size == 0:
        return lambda *_: allocate(client.pool, out)
    name, whole = text(maker, out.dtype, data)
    packs = -(-out.nbytes // 16)
    most = client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    grid = min(-(-packs // THREADS), most)
    widths = (*(1,) * _SLOTS, *(3,) * (domain is not None))
    launch, faults = Launcher(client, whole, name, grid, THREADS, widths), client.faults

    def run(seed: int, draw: int, parameters: Raw, address: int = 0) -> Any:
        result = allocate(client.pool, out)
        room = (0,) * (_PARAMETERS - len(parameters))
        told = () if domain is None else faults.parameters(domain)
        launch(result.address, address, seed, draw, *parameters, *room, out.size, *told)
        return result

    return run


def real_of(out: Spec) -> np.dtype[Any]:
    """The dtype that a floating draw is computed in."""
    return compute_of(out.dtype).numpy


def raw(real: np.dtype[Any], *values: Any) -> Raw:
    """Numbers as the slots that hold them in ``real``."""
    pack = raw_bits(float64 if real == np.float64 else float32)
    return tuple(pack(real.type(value))[0] for value in values)


def drawn(maker: str, parameters: Callable[..., Raw]) -> Callable[..., Any]:
    """The bind of a row whose parameters are all scalars, followed by seed and draw number."""

    def bind(client: Any, plan: Any) -> Callable[..., Any]:
        fill, out = launcher(client, plan.out, maker), plan.out

        def run(*values: Any) -> Any:
            *given, seed, draw = values
            return fill(int(seed), int(draw), parameters(out.dtype, *given))

        return run

    return bind


@functools.lru_cache(maxsize=1024)
def uniform_parameters(dtype: DType, low: float, high: float) -> Raw:
    """Span, offset and the bounds that a draw is held inside."""
    real = compute_of(dtype).numpy
    least, greatest = continuous.inside("uniform", low, high, dtype.numpy, closed=False)
    return raw(real, high - low, low, least, greatest)


@functools.lru_cache(maxsize=1024)
def normal_parameters(dtype: DType, mean: float, std: float) -> Raw:
    """Mean and standard deviation."""
    return raw(compute_of(dtype).numpy, mean, std)


@functools.lru_cache(maxsize=1024)
def exponential_parameters(dtype: DType, scale: float) -> Raw:
    """What the logarithm is multiplied by."""
    return raw(compute_of(dtype).numpy, -scale)


def limit_of(p: Any) -> int:
    """The number of words out of 2**32 that mean True."""
    return int(np.rint(float(p) * 2.0**32))


def truncated_normal(client: Any, plan: Any) -> Callable[..., Any]:
    """One kernel for each of three proposals; the parameters choose which, at each call."""
    out, real = plan.out, real_of(plan.out)
    filled = functools.cache(lambda maker: launcher(client, out, maker))

    @functools.lru_cache(maxsize=64)
    def setting(mean: float, std: float, low: float, high: float) -> tuple[str, Raw]:
        bounds = continuous.inside("truncated_normal", low, high, out.dtype.numpy, closed=True)
        kind, constants, origin, step = continuous.truncation(mean, std, low, high, real)
        three = (*constants, 0)[:3]
        return kind.capitalize(), raw(real, *three, origin, step, *bounds)

    def run(mean: Any, std: Any, low: Any, high: Any, seed: Any, draw: Any) -> Any:
        maker, parameters = setting(float(mean), float(std), float(low), float(high))
        return filled(maker)(int(seed), int(draw), parameters)

    return run


def gamma(client: Any, plan: Any) -> Callable[..., Any]:
    """Concentration by value or in memory."""
    alpha, out, real = plan.specs[0], plan.out, real_of(plan.out)
    spread, data = _spread(client, alpha, out)
    domain = _domain(client, plan, data, *_CONCENTRATION)
    fill = launcher(client, out, "Gamma", data, domain)
    ends = raw(real, np.finfo(real).tiny, np.finfo(real).max)
    double = raw_bits(float64)

    def run(concentration: Any, scale: Any, seed: Any, draw: Any) -> Any:
        if data is not None:
            held = spread(concentration)
            parameters = (0, *raw(real, scale), *ends)
            return fill(int(seed), int(draw), parameters, held.address)
        parameters = (*double(float(concentration)), *raw(real, scale), *ends)
        return fill(int(seed), int(draw), parameters)

    return run


def bernoulli(client: Any, plan: Any) -> Callable[..., Any]:
    """Probability by value or in memory."""
    spread, data = _spread(client, plan.specs[0], plan.out)
    domain = _domain(client, plan, data, *_PROBABILITY)
    fill = launcher(client, plan.out, "Below" if data is None else "Bernoulli", data, domain)

    def run(p: Any, seed: Any, draw: Any) -> Any:
        if data is None:
            return fill(int(seed), int(draw), (limit_of(p), 0))
        held = spread(p)
        return fill(int(seed), int(draw), (), held.address)

    return run


_CONCENTRATION = "concentration out of its domain", "concentration", "finite numbers above 0"
_PROBABILITY = "p is no probability", "p", "0 <= p <= 1"


def _domain(
    client: Any, plan: Any, data: DType | None, what: str, name: str, expected: str
) -> Domain | None:
    """That of a parameter in memory, in the words of the CPU."""
    if data is None:
        return None
    dense = spec_of(client, plan.out.shape, data)
    return Domain(plan.op.name, dense, (what, name + "={value} at {place}", expected))


def _spread(client: Any, given: Spec, out: Spec) -> tuple[Callable[[Any], Any], DType | None]:
    """A dense handle, of the shape of ``out``, from a parameter that is a tensor, and its dtype."""
    if given.weak:
        return (lambda handle: handle), None
    dense = spec_of(client, out.shape, given.dtype)
    if given is dense:
        return (lambda handle: handle), given.dtype
    # A parameter is seldom as large as the draw, so a copy of it beats strides in every kernel.
    return client.copier(dense, given), given.dtype


def integers(client: Any, plan: Any) -> Callable[..., Any]:
    """One word or two for an element, by the span."""
    out = plan.out
    filled = functools.cache(lambda maker: launcher(client, out, maker))

    def run(low: Any, high: Any, seed: Any, draw: Any) -> Any:
        maker, parameters = span_parameters(int(low), int(high))
        return filled(maker)(int(seed), int(draw), parameters)

    return run


@functools.lru_cache(maxsize=1024)
def span_parameters(low: int, high: int) -> tuple[str, Raw]:
    """The maker of integers in [low, high), the span, the least fraction and the offset."""
    span = high - low
    bits = 32 if span <= 1 << 32 else 64
    whole = (1 << 64) - 1
    return "Narrow" if bits == 32 else "Broad", (span & whole, (1 << bits) % span, low & whole)


def dropout_mask(client: Any, plan: Any) -> Callable[..., Any]:
    """True where a word is not below the limit."""
    fill = launcher(client, plan.out, "Below")
    return lambda p, seed, draw: fill(int(seed), int(draw), (limit_of(p), 1))


def keys(client: Any, length: int) -> tuple[Spec, Callable[..., Any]]:
    """The spec of ``length`` random 64-bit keys, and a function of (seed, draw) that makes them."""
    spec = spec_of(client, (length,), uint64)
    fill = launcher(client, spec, "Keys")
    return spec, lambda seed, draw: fill(int(seed), int(draw), ())


KERNELS = {
    "uniform": drawn("Uniform", uniform_parameters),
    "normal": drawn("Normal", normal_parameters),
    "exponential": drawn("Exponential", exponential_parameters),
    "truncated_normal": truncated_normal,
    "gamma": gamma,
    "bernoulli": bernoulli,
    "integers": integers,
    "dropout_mask": dropout_mask,
}
