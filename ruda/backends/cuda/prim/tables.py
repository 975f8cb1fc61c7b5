"""Tables on the device of where many tensors lie, and of which block has which part of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.stream_order import touch
from ruda.core.dtypes import uint8
from ruda.core.spec import spec_of


def room(client: Any, nbytes: int) -> Any:
    """A handle of fresh memory."""
    return allocate(client.pool, spec_of(client, (max(nbytes, 1),), uint8))


def send(client: Any, target: Any, array: Any) -> None:
    """Queue a copy to a handle; a graph that is being captured makes the same at each replay."""
    capture, stream = client.order.capture, client.now.stream
    if capture is None:
        client.staging.send(target.address, array, stream)
    else:
        capture.slots.append(client.staging.send_for_good(target.address, array, stream))


class Replayed:
    """Whether a graph sends to a table as well: what it holds is then known to no later call.

    A graph sends whatever it needs itself, as calls between its replays may send something else.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.ever = False

    def __bool__(self) -> bool:
        self.ever = self.ever or self.client.order.capture is not None
        return self.ever


def hold(client: Any, *tables: Any) -> None:
    """Wait for other streams that still look at ``tables``, and let them wait for this one."""
    if client.guarded:
        touch(client.order, (), tables)


def chunk_of(client: Any, sizes: Sequence[int], least: int, most: int) -> int:
    """Elements of a part, a power of two: ``most``, or so few that parts fill the device."""
    share = sum(sizes) // (client.driver.multiprocessors * 4)
    return max(least, min(most, 1 << max(share, 1).bit_length() - 1))


def parts_of(client: Any, sizes: Sequence[int], chunk: int) -> tuple[Any, int]:
    """For each block its tensor and its part of ``chunk`` elements; and how many blocks."""
    parts = [(i, part) for i, n in enumerate(sizes) for part in range(-(-n // chunk))]
    array = np.array(parts, np.uint32)
    held = room(client, array.nbytes)
    if parts:
        send(client, held, array)
    return held, len(parts)
