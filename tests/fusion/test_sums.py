"""What products add by themselves: shortcuts, earlier gradients, rows of a shared table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from tests.fusion.dry import dry, names


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with dry() as client:
        yield client


def on(*shape: int, dtype: str = "bfloat16") -> Any:
    return ruda.asarray(np.ones(shape, "f4"), dtype=dtype, device="cuda")


def nodes(step: Any, *args: Any) -> list[str]:
    """The nodes of the last signature's graph."""
    compiled = ruda.compile(step)
    for _ in range(2):
        compiled(*args)
    program = compiled._all()[-1]
    assert program.captured is not None, program.stepwise
    return names(program.captured.graph.executable)


@pytest.mark.parametrize("rows", [1 << 13, 64])
def test_a_shortcut_of_halves_is_in_a_large_product(rows: int) -> None:
    w, b = on(512, 512), on(512)

    def block(x: Any) -> Any:
        y = x + F.linear(x, w, b)
        return y, F.layer_norm(y)

    found = nodes(block, on(rows, 512))
    wanted = "product+bias+sum" if rows > 64 else "product+bias"
    assert found[0] == wanted and len(found) == 2 and found[1].startswith("layer_norm"), found


def test_a_norm_that_alone_reads_the_sum_adds_it() -> None:
    w, b = on(512, 512), on(512)
    found = nodes(lambda x: F.layer_norm(x + F.linear(x, w, b)), on(1 << 13, 512))
    assert found[0] == "product+bias" and len(found) == 2, found


def test_a_shortcut_of_float32_is_left_to_the_norm() -> None:
    layer = nn.Linear(512, 512).to("cuda")

    def block(x: Any) -> Any:
        with ruda.autocast("bfloat16"):
            y = x + layer(x)
            return y, F.layer_norm(y)

    found = nodes(block, on(1 << 13, 512, dtype="float32"))
    assert "product+bias" in found and "product+bias+sum" not in found, found


def test_gradients_of_earlier_calls_are_added_in_the_products() -> None:
    layers = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).to("cuda")
    x = on(2048, 1024, dtype="float32")

    def micro(x: Any) -> None:
        with ruda.autocast("bfloat16"):
            loss = (layers(x) ** 2).sum()
        loss.backward()

    first = nodes(lambda x: micro(x), x)
    assert "product+sum" not in first
    micro(x)
    found = nodes(lambda x: micro(x), x)
    assert found.count("product+sum") == 2, found


def tied(places: Any, table: Any) -> Any:
    with ruda.autocast("bfloat16"):
        loss = (F.linear(F.tanh(F.embedding(places, table)), table) ** 2).sum()
    loss.backward()
    found, table.grad = table.grad, None
    return found


@pytest.mark.parametrize("rows", [1 << 13, 1 << 11])
def test_the_gradient_of_a_large_table_is_added_to_that_of_its_head(rows: int) -> None:
    table = nn.Parameter(on(rows, 768, dtype="float32"))
    places = ruda.asarray(np.arange(8192) % 100, device="cuda")
    found = nodes(lambda places: tied(places, table), places)
    based = any(name.endswith("based") and name.startswith("rows_add") for name in found)
    assert based is (rows > 1 << 11), found
    # It lies where the product's gradient lay: no other row is touched.
    assert ("untouched" in found) is not based
    assert not based or "untouched_based" not in found
