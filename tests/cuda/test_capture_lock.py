"""Other threads while one of them records a graph: what they queue is not a part of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.cuda import capture_lock
from ruda.core.errors import CaptureError


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


class Meanwhile:
    """Runs ``work`` in another thread while ``client`` captures; ``found`` is what it gave."""

    def __init__(self, client: Any, work: Callable[[], Any]) -> None:
        self.work, self.found = work, None
        self.thread = threading.Thread(target=self._run)
        capture = client.capture

        def captured(queue: Callable[[], Any], *given: Any) -> Any:
            def queued() -> Any:
                out = queue()
                self.thread.start()
                self.thread.join(0.2)
                return out

            client.capture = capture
            return capture(queued, *given)

        client.capture = captured

    def _run(self) -> None:
        try:
            self.found = self.work()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.found = error

    def result(self) -> Any:
        """What ``work`` gave or raised, once it is over."""
        self.thread.join(30)
        return self.found


def other_step() -> Any:
    return ruda.compile(lambda x: x * 5 + 1)


@pytest.mark.parametrize("kind", ["operator", "read", "upload", "write", "step"])
def test_others_wait_until_a_graph_is_recorded(deferred: Any, kind: str) -> None:
    b, other = on(np.full(4, 3.0, "f")), other_step()
    for _ in range(2):
        other(b)

    def changed() -> Any:
        with ruda.no_grad():
            b.assign(b + 3)
        return b

    works: dict[str, Callable[[], Any]] = {
        "operator": lambda: b * 2,
        "read": lambda: b.numpy() * 2,
        "upload": lambda: on(np.full(4, 6.0, "f")),
        "write": changed,
        "step": lambda: other(b) - 10,
    }
    meanwhile = Meanwhile(deferred, works[kind])
    step = ruda.compile(lambda x: ruda.exp(x) + 1)
    for _ in range(3):
        np.testing.assert_allclose(step(on(np.zeros(4, "f"))).numpy(), 2.0)
    assert "replayed as one graph" in step.explain()
    assert len(step._all()[0].graph.instructions) == 1
    found = meanwhile.result()
    np.testing.assert_array_equal(found.numpy() if isinstance(found, ruda.Tensor) else found, 6.0)


def test_two_threads_make_their_first_calls_at_once(deferred: Any) -> None:
    start, found = threading.Barrier(2), [None, None]

    def work(i: int) -> None:
        weight = on(np.full((8, 8), i + 1.0, "f"))
        step = ruda.compile(lambda x: (x * weight).sum() + ruda.exp(x * 0).sum())
        start.wait()
        found[i] = [step(on(np.full((8, 8), float(k), "f"))).item() for k in range(4)]  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == [[64.0 * (i + 1) * k + 64.0 for k in range(4)] for i in range(2)]


def test_who_is_waited_for_in_a_block_is_refused(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_lock, "_PATIENCE", 0.1)
    b = on(np.ones(4, "f"))
    (b * 2).numpy()
    meanwhile = Meanwhile(deferred, lambda: b * 2)
    step = ruda.compile(lambda x: ruda.exp(x) + 1)
    step(b)
    assert isinstance(meanwhile.result(), CaptureError)
    np.testing.assert_allclose((b * 2).numpy(), 2.0)
