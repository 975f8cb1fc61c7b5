"""What a small product does to its result before it is written: elementwise steps in its kernel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from ruda.backends.cuda.codegen_steps import Step, functions
from ruda.backends.cuda.types import computed, stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class End:
    """The steps, which of their results are written, and the dtypes of the operands they read.

    Source 0 of a step is the product, then come the operands, then the results of earlier steps.
    ``kept`` counts results from the product on: 0 is the product itself.
    """

    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    reads: tuple[DType, ...]

    @property
    def name(self) -> str:
        """The end of a kernel's name; empty where nothing is done."""
        if not self.steps:
            return ""
        words = "_".join(dict.fromkeys(step.op for step in self.steps))[:48]
        return f"_{words}_{hashlib.sha256(repr(self).encode()).hexdigest()[:10]}"

    @property
    def count(self) -> int:
        """Addresses that the kernel takes for this."""
        return len(self.kept) + len(self.reads)

    @property
    def functions(self) -> str:
        """What stands in front of the kernel."""
        text = functions(self.steps)[0]
        return f'#include "ruda/math.cuh"\n{text}\n' if text else ""

    @property
    def settings(self) -> dict[str, Any]:
        """What the kernel's text leaves open."""
        results, reads = range(len(self.kept)), range(len(self.reads))
        outs = [f"float* __restrict__ o{j}" for j in results]
        outs += [f"const {stored(d)}* __restrict__ i{j}" for j, d in enumerate(self.reads)]
        read = [f"float r{j}[4];" for j in results]
        read += [f"float q{j}[4]; read_quad(q{j}, i{j} + place, whole, rest);" for j in reads]
        each = [self._call(k, step) for k, step in enumerate(self.steps)]
        each += [f"r{j}[c] = {'t' if k == 0 else f't{k - 1}'};" for j, k in enumerate(self.kept)]
        write = [f"write_quad(o{j} + place, r{j}, whole, rest);" for j in results]
        names = ("END_PARAMETERS", "END_READ", "END_EACH", "END_WRITE")
        parts = (", ".join(outs), *(" ".join(part) for part in (read, each, write)))
        return dict(zip(names, parts, strict=True))

    def _call(self, k: int, step: Step) -> str:
        same = functions(self.steps)[1]
        given = [
            f"to<{computed(dtype)}>({self._source(source)})"
            for source, dtype in zip(step.sources, step.computed, strict=True)
        ]
        return f"const {stored(step.out)} t{k} = step{same[k]}({', '.join(given)});"

    def _source(self, source: int) -> str:
        if source == 0:
            return "t"
        reads = len(self.reads)
        return f"q{source - 1}[c]" if source <= reads else f"t{source - 1 - reads}"


PLAIN = End((), (0,), ())
