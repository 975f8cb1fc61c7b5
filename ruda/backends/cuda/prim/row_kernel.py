"""The launches of one row kernel: its class by the size of packs, its blocks, its geometry."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from ruda.backends.cuda.codegen_rows import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.prim.row_operands import Side, Work, layout_of
from ruda.backends.cuda.prim.row_pipes import piped_sharing, skews_sums
from ruda.backends.cuda.prim.row_sharing import (
    Sharing,
    held_sharing,
    ring_of,
    skewed_vector,
    spare_of,
    stays,
    streamed_sharing,
    vector_of,
    wants_small,
    with_columns,
)
from ruda.backends.cuda.row_programs import Input, Output, Program, Rows

# Rows that are read again should still be in the L2 cache by then.
_CACHED = 32 << 20
# Rows that a cluster has by turns: clusters begin less often (losses and gradients of 8192 x 128256
# logits in bfloat16 take 1.106 ms, one row each 1.150), and weights are in the first cache for all
# but the first row.
_TURNS = 4
# A share of blocks that does not pay for sums in two pieces each.
_NEARLY = 0.95
# Multiprocessors that are close enough for a cluster: no device has fewer together.
_CLOSE = 16


class Kernel:
    """The launches of one program over one layout; the one without packs is made when needed.

    Rows that begin anywhere are read by packs as well, where it ``skews``.
    """

    def __init__(
        self, work: Work, held: Program | None, stream: Program, skews: bool = False
    ) -> None:
        self.work, self.layout = work, layout_of(work)
        self.programs = held, stream
        self.vec = vector_of(work, self.layout)
        skewed = skewed_vector(work, self.layout, self.vec) if skews else 0
        if skewed and held is not None and held.sums:
            skewed *= skews_sums(work, held, self.layout, skewed)
        self.vec, self.skewed = skewed or self.vec, skewed > 0
        self._made: dict[int, tuple[Launcher, int, Rows]] = {}

    def made(self, vec: int) -> tuple[Launcher, int, Rows]:
        """Launcher, blocks and class of the kernel with packs of ``vec``."""
        found = self._made.get(vec)
        if found is None:
            found = self._made[vec] = self._make(vec)
        return found

    def _make(self, vec: int) -> tuple[Launcher, int, Rows]:
        held, stream = self.programs
        small = wants_small(self.work, self.skewed)
        shape = None
        if held is not None:
            skewed = self.skewed and vec > 1
            shape = piped_sharing(self.work, held, vec, self.layout, skewed)
            shape = shape or held_sharing(self.work, held, vec, small, skewed)
        program = stream if shape is None or held is None else held
        shape = shape or streamed_sharing(self.work, program, vec, self.skewed and vec > 1)
        kernel = self.kernel(program, shape, vec)
        blocks = self._blocks(kernel)
        partial = bool(program.sums) and shape.mode == "held"
        count = len(kernel.outs) + len(program.row_outs) + partial + len(kernel.inputs)
        widths = (*(1,) * count, *(3,) * program.faults)
        launcher = Launcher(
            self.work.client,
            source(kernel),
            kernel.name,
            blocks if kernel.cluster == 1 else (blocks, 1, kernel.cluster),
            (kernel.threads, kernel.abreast),
            widths,
            [self.geometry()],
            kernel.shared,
        )
        return launcher, blocks, kernel

    def kernel(self, program: Program, shape: Sharing, vec: int) -> Rows:
        """The class of kernel."""
        work, layout = self.work, self.layout

        def form(side: Side) -> str:
            if vec == 1 or side.role in ("row", "one", "value"):
                return "each"
            return "dense" if layout.steps[side.name][1][-1] else "same"

        def still(side: Side) -> bool:
            return side.role == "column" and not any(layout.steps[side.name][0])

        made = Rows(
            program,
            tuple(
                Input(s.name, s.dtype, s.role, form(s), s.raw, s.by, s.wraps, still(s))
                for s in work.inputs
            ),
            tuple(Output(s.name, s.dtype) for s in work.outs),
            work.row_dtype,
            work.compute,
            *shape[:3],
            vec,
            len(layout.outer),
            len(layout.inner),
            cluster=shape.cluster,
            apart=shape.apart,
            skewed=self.skewed and vec > 1,
            spare=spare_of(work.inputs, vec) if self.skewed else 0,
        )
        if shape.ring:
            return replace(made, ring=shape.ring, keeps=shape.keeps, piped=True, spare=0)
        room = work.client.driver.shared_memory
        if not made.skewed:
            made = replace(made, ring=ring_of(made, shape.long, room))
        kept = with_columns(made, room)
        # Rows abreast have half of the blocks: few rows have more multiprocessors without.
        few = kept.abreast > 1 and work.rows < kept.abreast * self._resident(kept)
        return made if few else kept

    def _blocks(self, kernel: Rows) -> int:
        work, here = self.work, self.work.client.driver.multiprocessors
        blocks = -(-work.rows // kernel.groups)
        if kernel.apart:
            blocks *= -(-work.length // (kernel.per * kernel.lanes * kernel.vec))
        if kernel.cluster > 1:
            return self._alike(kernel, min(blocks, self._clusters(kernel, blocks)))
        if kernel.stays:
            return self._alike(kernel, int(min(blocks, here * (1024 // kernel.threads))))
        if kernel.walks:
            each = 8 if kernel.threads <= 128 else 512 // kernel.threads
            return self._alike(kernel, int(min(blocks, here * each)))
        if kernel.mode == "stream" and len(kernel.program.passes) > 1:
            nbytes = sum(s.dtype.itemsize for s in work.inputs if s.role == "rows") * work.length
            return int(min(blocks, here * max(1, min(2, _CACHED // (max(nbytes, 1) * here)))))
        return min(blocks, 2**31 - 1)

    def _alike(self, kernel: Rows, blocks: int) -> int:
        """So many blocks that those of one have rows that begin alike, where that is needed.

        Sums may be in two pieces as well, if that keeps more of the blocks.
        """
        whole = max(1, blocks // kernel.vec) * kernel.vec
        if kernel.piped and kernel.skewed:
            return whole if _NEARLY * blocks <= whole <= blocks else blocks
        return whole if kernel.moves and not kernel.by_kind else blocks

    def _clusters(self, kernel: Rows, rows: int) -> int:
        """As many clusters as run at a time; more where each has but a few rows by turns."""
        if kernel.piped:
            alone = self.work.client.driver.clusters(kernel.cluster)
            return int(alone) * (512 // kernel.threads)
        here = self._resident(kernel)
        if stays(kernel):
            # Not one more: those that wait begin when all others end.
            alone = self.work.client.driver.clusters(kernel.cluster)
            return int(alone) * (kernel.resident // (kernel.threads * kernel.abreast))
        if kernel.program.sums:
            return here
        return max(here, -(-rows // _TURNS))

    def _resident(self, kernel: Rows) -> int:
        """Clusters that run at a time."""
        blocks = kernel.resident // (kernel.threads * kernel.abreast)
        near = _CLOSE * blocks // kernel.cluster
        return max(1, int(self.work.client.driver.multiprocessors) // _CLOSE * near)

    def geometry(self) -> bytes:
        """The struct Geometry."""
        work, layout = self.work, self.layout
        numbers = [work.rows, work.length, *layout.outer, *layout.inner]
        for outer, inner in layout.steps.values():
            numbers += [*outer, *inner]
        packed = struct.pack(f"<{len(numbers)}q", *numbers)
        return packed + struct.pack(f"<{len(work.scalars)}d", *work.scalars)

    def pick(self, addresses: Sequence[int]) -> int:
        """The size of packs that addresses of operands and outputs allow."""
        joint = 0
        for address in addresses:
            joint |= address
        return self.vec if joint & 15 == 0 else 1
