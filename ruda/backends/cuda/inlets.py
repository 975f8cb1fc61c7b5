"""What changes from call to call comes to the places of a graph by one launch.

Small arguments are copied to their slots, Python scalars go by value into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.backends.cuda.launch import Launcher

# Copies and scalars of a launch, which has room for 4 KiB of parameters.
_MOST_COPIES, _MOST_NUMBERS = 16, 64
# Bytes of what is copied so; a launch of its own costs nothing beside larger copies.
_SMALL, _THREADS, _BLOCKS = 1 << 20, 256, 132

_TEXT = """#include "ruda/types.cuh"
struct alignas(16) Words {{ u64 at[2]; }};
// All threads: `bytes` from one place to another, in words of 16 where both are aligned.
__device__ __forceinline__ void copied(const char* from, char* to, u64 bytes) {{
    const u64 start = (u64)blockIdx.x * {threads} + threadIdx.x;
    const u64 step = (u64)gridDim.x * {threads};
    const u64 words = (((u64)from | (u64)to) & 15) == 0 ? bytes / 16 : 0;
    for (u64 i = start; i < words; i += step)
        reinterpret_cast<Words*>(to)[i] = reinterpret_cast<const Words*>(from)[i];
    for (u64 i = words * 16 + start; i < bytes; i += step) to[i] = from[i];
}}
// Copies by all blocks, and n numbers, passed by value, into the page by the first thread.
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{
{copies}
    if (blockIdx.x == 0 && threadIdx.x == 0) {{
{stores}
    }}
}}
"""


def suits(spec: Any) -> bool:
    """Whether an argument of ``spec`` is brought to its slot by the common launch."""
    return bool(spec.contiguous and 0 < spec.nbytes <= _SMALL)


class Inlet:
    """The launch of one graph: addresses and sizes of slots, then ``numbers`` scalars of a page."""

    def __init__(self, client: Any, slots: Sequence[Any], page: Any, numbers: int) -> None:
        # Addresses are filled in by each call, between those of the slots and the sizes.
        self.slots = [(slot.address, slot.spec.nbytes) for slot in slots]
        self.page = 0 if page is None else page.memory.address
        self.room = 1 << (numbers - 1).bit_length() if numbers else 0
        self.numbers = numbers
        name = f"bring_{len(slots)}_{self.room}"
        total = sum(nbytes for _, nbytes in self.slots)
        blocks = min(_BLOCKS, max(1, -(-total // (16 * _THREADS))))
        widths = (1,) * (3 * len(slots) + 2 + self.room)
        self.launcher = Launcher(
            client, _source(name, len(slots), self.room), name, blocks, _THREADS, widths
        )

    def bring(self, addresses: Sequence[int], bits: Sequence[int]) -> None:
        """Queue the copies from ``addresses``, and the numbers as 8 bytes each."""
        values: list[int] = []
        for address, (slot, nbytes) in zip(addresses, self.slots, strict=True):
            values += (address, slot, nbytes)
        room = (0,) * (self.room - self.numbers)
        self.launcher(*values, self.page, self.numbers, *bits, *room)


def inlet(client: Any, slots: Sequence[Any], page: Any, numbers: int) -> Inlet | None:
    """The common launch of what ``suits`` and of a page; None where there is one launch anyway."""
    launches = len(slots) + (numbers > 0)
    if launches < 2 or len(slots) > _MOST_COPIES or numbers > _MOST_NUMBERS:
        return None
    return Inlet(client, slots, page, numbers)


def _source(name: str, copies: int, room: int) -> str:
    given = [f"const char* s{i}, char* t{i}, u64 b{i}" for i in range(copies)]
    given += ["u64* page", "u64 n", *(f"u64 v{i}" for i in range(room))]
    return _TEXT.format(
        threads=_THREADS,
        name=name,
        parameters=", ".join(given),
        copies="\n".join(f"    copied(s{i}, t{i}, b{i});" for i in range(copies)),
        stores="\n".join(f"        if ({i} < n) page[{i}] = v{i};" for i in range(room)),
    )
