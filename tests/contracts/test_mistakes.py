"""What people get wrong on their first day, and what the error tells them to try."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.tensor.elsewhere import NAMES

X = ruda.ones((4, 3))


@pytest.mark.parametrize("name", NAMES)
def test_methods_of_other_libraries_are_hinted_at(name: str) -> None:
    assert not hasattr(X, name) and name not in dir(X)
    assert repr(getattr(ruda.Tensor, name)).startswith("<not there: try ")
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Try ") as caught:
        getattr(X, name)
    for root, method in re.findall(r"\b(x|ruda)\.([a-z_]\w*)", str(caught.value)):
        assert hasattr(ruda.ones((2, 2)) if root == "x" else ruda, method)


def test_other_unknown_methods_get_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"^'RudaTensor' object has no attribute 'frobnicate'"):
        _ = X.frobnicate
    assert {"reshape", "grad", "mT"} <= set(dir(X))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "class with data": (lambda: ruda.Tensor([1, 2]), "Got list.*Try ruda.tensor"),
    "dtype by another name": (lambda: ruda.ones(3, dtype="float"), "Got 'float'.*Try 'float32'"),
    "misspelt dtype": (lambda: ruda.ones(3, dtype="flaot64"), "Got 'flaot64'.*Try 'float64'"),
    "no dtype": (lambda: ruda.ones(3, dtype=["float32"]), r"Got \['float32'\]. Expected one of"),
    "integers with gradients": (
        lambda: ruda.tensor([1, 2], requires_grad=True),
        r'Got int32.*Try dtype="float32"',
    ),
    "images into a linear layer": (
        lambda: nn.Linear(64, 3)(ruda.ones((5, 1, 8, 8))),
        r"Got input \(5, 1, 8, 8\), weight \(3, 64\).*Try nn.Flatten\(\)",
    ),
    "images without an axis of channels": (
        lambda: nn.Conv2d(1, 4, 3)(ruda.ones((16, 8, 8))),
        r"conv2d: input channels.*Got input \(16, 8, 8\).*Expected 1 in.*Try x\[:, None\]",
    ),
    "channels last": (
        lambda: nn.Conv2d(3, 4, 3)(ruda.ones((16, 8, 8, 3))),
        r'conv2d.*Got input \(16, 8, 8, 3\).*Expected 3 in place of 8.*Try layout="nhwc"',
    ),
    "channels first": (
        lambda: nn.Conv2d(3, 4, 3, layout="nhwc")(ruda.ones((16, 3, 8, 8))),
        r"conv2d.*Got input \(16, 3, 8, 8\).*Expected 3 in place of 8\.$",
    ),
    "integers one-hot": (
        lambda: F.cross_entropy(X, ruda.ones((4, 3), dtype="int32")),
        r"Got \(4, 3\). Expected \(4,\). Try target.argmax\(axis=1\)",
    ),
    "targets in a column": (
        lambda: F.cross_entropy(X, ruda.zeros((4, 1), dtype="int64")),
        r"Got \(4, 1\). Expected \(4,\). Try target.reshape\(\(4,\)\)",
    ),
    "too few targets": (
        lambda: F.cross_entropy(X, ruda.zeros(3, dtype="int64")),
        r"Got \(3,\). Expected \(4,\)\.$",
    ),
    "a misspelt state": (
        lambda: nn.Linear(2, 2).load_state_dict({"weigth": X}),
        r"unexpected \['weigth'\].*ruda.store.load_into",
    ),
    "an operator's name": (
        lambda: ruda.custom_op(np.sin),
        r'Got sin. Try custom_op\(..., name="my_sin"\)',
    ),
    "bytes in words": (
        lambda: ruda.compile(lambda: 0, memory="1GB"),  # type: ignore[arg-type]
        r"Got '1GB'. Expected a whole number of bytes. Try 8 << 30",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_to_try(mistake: str) -> None:
    call, match = MISTAKES[mistake]
    with pytest.raises(ruda.RudaError, match=match):
        call()
