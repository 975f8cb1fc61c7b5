"""What public functions say to lists, arrays and numbers where they take tensors."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.fft
import ruda.linalg
import ruda.nn.functional as F
import ruda.optim
from ruda.core.errors import DTypeError, RudaError
from ruda.nn import init
from ruda.tensor.given import given_tensors

FACES = {"ruda": ruda, "linalg": ruda.linalg, "fft": ruda.fft, "F": F, "init": init}
FACES["optim"] = ruda.optim
# Functions that would wait for something, or change what other tests rely on.
LEFT_OUT = {"set_default_device", "set_default_dtype", "deterministic", "seed", "load", "save"}
LEFT_OUT |= {"set_printoptions"}
TENSOR, ARRAY = ruda.ones((2, 2)), np.ones((2, 2), np.float32)
STRANGE = ([1.0, 2.0], ARRAY, [[1.0, 2.0], [3.0, 4.0]], 1.0, None, "text", (1, 2), np.float32(1))


def functions() -> Iterator[Any]:
    seen: set[int] = set()
    for face, module in FACES.items():
        for name in getattr(module, "__all__", dir(module)):
            found = getattr(module, name)
            plain = callable(found) and not isinstance(found, type) and not inspect.ismodule(found)
            if (
                plain
                and name not in LEFT_OUT
                and not name.startswith("_")
                and id(found) not in seen
            ):
                seen.add(id(found))
                yield pytest.param(found, id=f"{face}.{name}")


@pytest.mark.parametrize("function", list(functions()))
def test_no_argument_is_answered_with_an_attribute_error(function: Callable[..., Any]) -> None:
    for bad, count, others in itertools.product(STRANGE, (1, 2, 3, 4), (None, TENSOR, ARRAY)):
        for place in range(count):
            values = [bad if others is None else others] * count
            values[place] = bad
            try:
                function(*values)
            except AttributeError as error:
                pytest.fail(f"{[type(v).__name__ for v in values]}: {error}")
            except Exception:  # noqa: BLE001 - any other answer is fine here
                continue


@pytest.mark.parametrize(
    ("function", "values", "name"),
    [
        (F.softmax, ([1.0],), "softmax"),
        (ruda.sum, ([1, 2],), "sum"),
        (ruda.repeat, ([1, 2], 2), "repeat"),
        (F.mse_loss, (TENSOR, [1.0]), "mse_loss"),
        (ruda.linalg.svd, (ARRAY.tolist(),), "svd"),
        (ruda.matmul, ([1, 2], [3]), "matmul"),
        (F.linear, ([1.0], [2.0]), "linear"),
        (F.scaled_dot_product_attention, (TENSOR, TENSOR, [1.0]), "scaled_dot_product_attention"),
    ],
)
def test_the_error_names_function_value_and_cure(
    function: Callable[..., Any], values: tuple[Any, ...], name: str
) -> None:
    with pytest.raises(DTypeError, match=r"of type list.*Try ruda\.asarray") as caught:
        function(*values)
    assert caught.value.op == name
    assert isinstance(caught.value, TypeError)


def test_an_error_of_another_kind_stays_what_it_is() -> None:
    @given_tensors
    def misspelt(x: Any) -> Any:
        return x.sum().no_such_name

    with pytest.raises(AttributeError, match="no_such_name"):
        misspelt(TENSOR)
    with pytest.raises(RudaError, match="misspelt: not a tensor"):
        misspelt([1.0])
