"""Who holds memory now: found by looking, when somebody asks, and not by keeping books."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

_SHOWN = 5


class Holder(NamedTuple):
    """A live block: where it is, its size, what lies in it, who asked for it if that is recorded.

    ``tensor`` is its dtype and shape as text, empty for a buffer; ``line`` is ``file:line`` and
    ``module`` the classes of the modules that were running, both empty unless
    ``ruda.cuda.record_memory`` was on.
    """

    address: int
    nbytes: int
    tensor: str
    line: str
    module: str

    def __str__(self) -> str:
        parts = [self.tensor or "a buffer", f"of {self.nbytes:,} bytes"]
        parts += [f"from {self.line}"] if self.line else []
        parts += [f"in {self.module}"] if self.module else []
        return " ".join(parts)


def holders(pool: Any) -> list[Holder]:
    """The live blocks of ``pool``, the largest first."""
    found: dict[int, tuple[int, str]] = {}
    for thing in gc.get_objects():
        kind = type(thing)
        if kind.__module__ != _MEMORY:
            continue
        block = getattr(thing, "block", None) if kind.__name__ == "Handle" else None
        if kind.__name__ == "Block" and getattr(thing, "pool", None) is pool:
            found.setdefault(getattr(thing, "address", 0), (getattr(thing, "size", 0), ""))
        elif block is not None and getattr(block, "pool", None) is pool:
            text = f"{thing.spec.dtype.name}{list(thing.spec.shape)}"
            found[block.address] = block.size, text
    origins = {} if pool.special is None else pool.special.origins
    out = [Holder(a, n, text, *origins.get(a, ("", ""))) for a, (n, text) in found.items() if n]
    return sorted(out, key=lambda h: (-h.nbytes, h.address))


_MEMORY = "ruda.backends.cuda.memory"


def largest(pool: Any, count: int = _SHOWN) -> list[str]:
    """The largest holders as text: an error may keep these, since they keep no memory."""
    return [str(holder) for holder in holders(pool)[:count]]
