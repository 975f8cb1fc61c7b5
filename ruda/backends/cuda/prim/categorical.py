"""Draws that choose: categories by weight, and permutations, which are the order of random keys."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda import source
from ruda.backends.cuda.faults import Domain
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import random
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, compute_of, float64, uint64
from ruda.core.mode import recording
from ruda.core.spec import Spec, spec_of
from ruda.ops.compare import greater
from ruda.ops.select import where
from ruda.ops.sort import argsort, topk
from ruda.tensor.tensor import wrap

THREADS = 256
# Units of the greatest weight have at most the bits of a float64.
_MOST_BITS = 53


def text(stage: int, data: DType) -> tuple[str, str]:
    """Name and source of one of the three launches."""
    name = f"categorical_{('sums', 'search', 'checked')[stage]}_{code_of(data)}"
    return name, source.instance(__file__, NAME=name, STAGE=stage, DATA=stored(data))


def permutation(client: Any, plan: Any) -> Callable[..., Any]:
    """The stable order of one 64-bit key for each position."""
    length = plan.attrs[0]
    spec, make = random.keys(client, length)

    def run(seed: Any, draw: Any) -> Any:
        with recording(False):
            return argsort(wrap(spec, make(seed, draw))).handle

    return run if length else lambda *_: allocate(client.pool, plan.out)


def categorical(client: Any, plan: Any) -> Callable[..., Any]:
    """With replacement a search in cumulative weights, without the greatest scores."""
    weights = plan.specs[0]
    samples, logits, replacement = plan.attrs
    if plan.out.size == 0:
        return lambda *_: allocate(client.pool, plan.out)
    dense = spec_of(client, weights.shape, weights.dtype)
    domain = _domain(dense, *plan.attrs)
    if replacement:
        chosen = _by_search(client, dense, plan.out, logits, domain)
    else:
        chosen = _by_rank(client, dense, samples, logits, domain)
    if weights is dense:
        return lambda h, seed, draw: chosen(h, int(seed), int(draw))
    # Both ways read the weights more than once: a dense copy is cheaper than strides each time.
    copy = client.copier(dense, weights)
    return lambda h, seed, draw: chosen(copy(h), int(seed), int(draw))


def _domain(weights: Spec, samples: int, logits: bool, replacement: bool) -> Domain:
    """The faults of the kernels, in the words of the CPU."""
    kind = "logits" if logits else "probabilities"
    rule = "numbers below inf" if logits else "finite numbers of at least 0"
    few = "{value} at {place} for " + f"{samples} samples with replacement={replacement}"
    need = f"at least {1 if replacement else samples}"
    return Domain(
        "categorical",
        weights,
        (f"bad {kind}", "{value} at {place}", rule),
        ("too few possible categories in a row", few, need),
        counts=(1,),
    )


def _by_search(
    client: Any, weights: Spec, out: Spec, logits: bool, domain: Domain
) -> Callable[..., Any]:
    count, samples = weights.shape[-1], out.shape[-1]
    rows = weights.size // count
    sums = spec_of(client, weights.shape, uint64)
    most = client.driver.multiprocessors * 16
    units = 2.0 ** min(_MOST_BITS, 62 - math.ceil(math.log2(count)))
    name, whole = text(0, weights.dtype)
    # By value between the addresses and the faults: rows, count, logits and units, in slots.
    add = Launcher(client, whole, name, min(rows, most), THREADS, (1, 1, 1, 1, 1, 1, 3))
    (bits,) = raw_bits(float64)(units)
    name, whole = text(1, weights.dtype)
    sizes = [struct.pack("<Q", out.size), struct.pack("<I", count), struct.pack("<I", samples)]
    grid = min(-(-out.size // THREADS), most)
    search = Launcher(client, whole, name, grid, THREADS, (1, 1, 1, 1), sizes)

    def run(h: Any, seed: int, draw: int) -> Any:
        scratch = allocate(client.pool, sums)
        told = client.faults.parameters(domain)
        add(scratch.address, h.address, rows, count, int(logits), bits, *told)
        result = allocate(client.pool, out)
        search(result.address, scratch.address, seed, draw)
        return result

    return run


def _by_rank(
    client: Any, weights: Spec, samples: int, logits: bool, domain: Domain
) -> Callable[..., Any]:
    real = compute_of(weights.dtype)
    scores = spec_of(client, weights.shape, real)
    fill = random.launcher(client, scores, "Gumbel", weights.dtype, domain)
    count = weights.shape[-1]
    rows = weights.size // count
    name, whole = text(2, real)
    check = Launcher(client, whole, name, -(-rows // THREADS), THREADS, (1, 1, 1, 1, 3))
    one = real.numpy.type(1)
    last = random.raw(real.numpy, np.nextafter(one, one - one))

    def run(h: Any, seed: int, draw: int) -> Any:
        noisy = wrap(scores, fill(seed, draw, (int(logits), *last), h.address))
        with recording(False):
            best = topk(noisy, samples)
            told = client.faults.parameters(domain)
            check(best.values.handle.address, rows, samples, count, *told)
            # Where fewer categories are possible than were asked for, the rest has no answer.
            return where(greater(best.values, -math.inf), best.indices, -1).handle

    return run


KERNELS = {"permutation": permutation, "categorical": categorical}
