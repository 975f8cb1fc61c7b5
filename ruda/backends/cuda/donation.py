"""Results that take over the memory of an operand that nobody reads any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.memory import Block


class _Taken:
    """The pool of a block whose memory is another block's now: nothing goes back."""

    plain = False

    def give(self, address: int, size: int) -> None:
        """Leave the memory with the block that has it."""


_TAKEN = _Taken()


def donating(client: Any, run: Callable[..., Any], given: Sequence[int]) -> Callable[..., Any]:
    """``run``, whose results may have the memory of the operands at ``given``."""
    local = client.guards.local

    def donated(*handles: Any) -> Any:
        local.given = found = defaultdict(list)
        for i in given:
            root = handles[i].root or handles[i]
            block = root.block
            # Red zones know each block by its margins, and what others own is not ours to give.
            if block.__class__ is Block and block.pool is client.pool:
                found[root.spec.nbytes].append(block)
        try:
            return run(*handles)
        finally:
            local.given = None

    return donated


def take(given: dict[int, list[Any]], nbytes: int) -> tuple[int, int] | None:
    """Address and size of a block of ``nbytes`` that was given; None if there is none."""
    blocks = given.get(nbytes)
    if not blocks:
        return None
    block = blocks.pop()
    block.pool = _TAKEN
    return block.address, block.size
