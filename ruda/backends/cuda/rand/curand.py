"""cuRAND, through nvmath-python's bindings: words and numbers from its own Philox generator.

The library keeps the place in its stream; here each draw has a place of its own, which is set
before it: seed and draw number are the whole state, and draws of other sizes change nothing.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from ruda.backends.cuda.bindings import binding
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import float64
from ruda.core.errors import ArgumentError, StrategyError
from ruda.core.spec import Spec

# curandRngType_t: Philox 4x32-10, which jumps to any place at once.
_PHILOX = 161
# Words of a draw: the library counts them by 64 bits, and a stream has 2**30 draws.
_WORDS = 34


class Library:
    """cuRAND of one client: one generator, which one thread at a time uses."""

    def __init__(self, client: Any, module: Any) -> None:
        self.client, self.module = client, module
        client.driver.activate()
        self.handle = module.create_generator(_PHILOX)
        self._lock = threading.Lock()

    def fill(self, op: str, kind: str, spec: Spec, seed: int, draw: int) -> Any:
        """A handle of ``spec`` full of ``"words"``, ``"uniform"`` or ``"normal"`` numbers."""
        client, n = self.client, spec.size
        if client.order.capture is not None:
            client.order.capture.refuse("a vendor's generator draws", 'engine="philox"')
        if n >= 1 << (_WORDS - 1):
            expected = f"below 2**{_WORDS - 1}"
            raise ArgumentError(op, "more numbers than a draw has", n, expected)
        out = allocate(client.pool, spec)
        if not n:
            return out
        client.order.current()
        with self._lock, client.failures(op):
            self.module.set_stream(self.handle, client.now.stream)
            self.module.set_pseudo_random_generator_seed(self.handle, seed)
            self.module.set_generator_offset(self.handle, draw << _WORDS)
            self._generate(kind, spec, out.address, n)
        return out

    def _generate(self, kind: str, spec: Spec, address: int, n: int) -> None:
        suffix = "_double" if spec.dtype is float64 else ""
        if kind == "words":
            self.module.generate(self.handle, address, 2 * n)
        elif kind == "uniform":
            getattr(self.module, "generate_uniform" + suffix)(self.handle, address, n)
        else:
            getattr(self.module, "generate_normal" + suffix)(self.handle, address, n, 0.0, 1.0)


@functools.cache
def library(client: Any) -> Library:
    """cuRAND of ``client``; raises ``StrategyError`` where it is not installed."""
    hint = 'pip install "ruda[cuda13]", or engine="philox"'
    try:
        curand = binding("curand")
    except ImportError:
        what = "needs cuRAND through nvmath-python"
        raise StrategyError("random", what, client.device, hint=hint) from None
    try:
        # The bindings are there and look for the library when they are first used.
        curand.get_version()
    except RuntimeError as error:
        what = f"needs cuRAND ({error})"
        raise StrategyError("random", what, client.device, hint=hint) from error
    return Library(client, curand)
