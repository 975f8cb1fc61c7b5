"""Several GPUs in one process: who is there, and what that changes for each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import launch

_made: list[Any] = []
# Two threads may each make the first client of another GPU: one of them has to see both.
_turn = threading.Lock()


def join(make: Callable[[], Any]) -> Any:
    """The client that ``make`` makes, once it and those of other GPUs know of each other.

    From then on what queues a kernel, a product or a graph makes its GPU the current one first.
    Streams are no more than before: each client has its one until somebody makes a second.
    """
    with _turn:
        made = make()
        known = [c for c in _made if c.device != made.device]
        _made.append(made)
        if known:
            tell([*known, made])
        return made


def tell(clients: list[Any]) -> None:
    """Let ``clients``, one for each GPU, know of each other."""
    launch.activate_always()
    for client in clients:
        client.order.crowded = client.driver.crowded = True
        client.staging.others = [c.staging for c in clients if c is not client]
