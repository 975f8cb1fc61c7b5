"""The second branch of a graph: what runs there, and who waits for whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from tests.fusion.dry import DryDriver, dry, graph_of
from tests.training import step_of

layouts = pytest.importorskip("ruda.backends.cuda.memory_layout")


class Queued(NamedTuple):
    """A node with the stream it was queued in, and the nodes that it has to wait for."""

    name: str
    stream: int
    after: tuple[int, ...]


class Capture:
    """What a driver takes down, with events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes: list[Queued] = []
        self._last: dict[int, int] = {}
        self._events: dict[int, int | None] = {}
        self._waits: dict[int, list[int]] = {}
        plain = DryDriver.note

        def note(driver: Any, name: str, size: int, stream: int) -> None:
            plain(driver, name, size, stream)
            if driver.graph is not None and stream in driver.captured:
                self._queue(name, stream)

        def record(driver: Any, event: int, stream: int) -> None:
            self._events[event] = self._last.get(stream)

        waits = DryDriver.stream_wait

        def stream_wait(driver: Any, stream: int, event: int) -> None:
            waits(driver, stream, event)
            found = self._events.get(event)
            if driver.graph is not None and found is not None:
                self._waits.setdefault(stream, []).append(found)

        monkeypatch.setattr(DryDriver, "note", note)
        monkeypatch.setattr(DryDriver, "record", record)
        monkeypatch.setattr(DryDriver, "stream_wait", stream_wait)

    def _queue(self, name: str, stream: int) -> None:
        before = [self._last[stream]] if stream in self._last else []
        self._last[stream] = len(self.nodes)
        self.nodes.append(Queued(name, stream, (*before, *self._waits.pop(stream, ()))))


def training(width: int, layers: int) -> Any:
    parts = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers))
    model = nn.Sequential(*parts, nn.Linear(width, 16)).to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-3)

    step = step_of(model, opt)

    return ruda.compile(step)


def test_the_way_to_the_first_layer_waits_for_no_gradient_of_a_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dry():
        seen = Capture(monkeypatch)
        x = ruda.asarray(np.zeros((256, 192), "f4"), device="cuda")
        y = ruda.asarray(np.arange(256) % 16, device="cuda")
        graph_of(training(192, 12), x, y)
    main = seen.nodes[0].stream
    aside = {i for i, node in enumerate(seen.nodes) if node.stream != main}
    assert len(aside) >= 8
    # How many targets count is known long before the loss asks for it.
    aside -= {i for i, node in enumerate(seen.nodes) if node.name.startswith("over_counted")}
    waiting = [node.name for node in seen.nodes if node.stream == main and aside & {*node.after}]
    assert all(name.startswith("adamw") for name in waiting), waiting


def test_what_works_aside_keeps_its_memory_until_it_is_over() -> None:
    log = layouts.Log()
    for address, first in ((1, False), (2, True), (3, True), (4, False)):
        log.took(address, 1024)
        log.gave(address)
        if first:
            log.all_lag(len(log.sizes) - 1)
    found = layouts.layout(log)
    one, second, third, last = found.offsets
    # The second branch runs one after the other: its blocks may meet, those of the first may not.
    assert second == third
    assert last != second and one in (0, last)


def test_a_block_knows_who_had_its_memory_though_another_began_there() -> None:
    plan = layouts.Layout((2048, 512, 1024), (0, 0, 512), 2048)
    planned = layouts.Planned(type("Piece", (), {"address": 1 << 20})(), plan)
    whole = planned.part(2048)
    assert planned.back(whole, "whole")
    start = planned.part(512)
    assert planned.beneath(start) == ["whole"] and planned.back(start, "start")
    rest = planned.part(1024)
    assert planned.beneath(rest) == ["whole"]
