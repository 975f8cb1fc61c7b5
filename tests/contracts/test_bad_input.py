"""What nobody should pass, and what happens then: a typed error that says what to do instead."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import store
from ruda.core.errors import RudaError

floats = ruda.asarray([1.0, 2.0, 3.0])
whole = ruda.asarray([1, 2, 3])
small = ruda.asarray([1, 2, 3], dtype="int8")
unsigned = ruda.asarray([1, 2, 3], dtype="uint8")
mask = ruda.asarray([True, False, True])
waves = ruda.asarray([1j, 2.0])
matrix = ruda.ones((3, 4))
nowhere = ruda.zeros(3, device="null")
HUGE = 10**400

CASES: dict[str, tuple[Any, type[Exception]]] = {
    "a ragged list": (lambda: ruda.asarray([[1, 2], [3]]), ValueError),
    "a ragged list of depths": (lambda: ruda.tensor([1, [2]]), ValueError),
    "a list with None": (lambda: ruda.asarray([1, None]), TypeError),
    "an object array": (lambda: ruda.asarray(np.array([1, None], object)), TypeError),
    "an object array as operand": (lambda: floats + np.array([1, 2, 3], object), TypeError),
    "a string": (lambda: ruda.asarray("abc"), TypeError),
    "strings": (lambda: ruda.asarray(["a", "b"]), TypeError),
    "bytes": (lambda: ruda.asarray(b"abc"), TypeError),
    "a set": (lambda: ruda.asarray({1, 2}), TypeError),
    "a dict": (lambda: ruda.asarray({}), TypeError),
    "a generator": (lambda: ruda.asarray(i for i in range(3)), TypeError),
    "nothing": (lambda: ruda.asarray(None), TypeError),
    "a date": (lambda: ruda.asarray(np.datetime64("2020-01-01")), TypeError),
    "a tracked tensor in a list": (
        lambda: ruda.asarray([1.0, ruda.tensor(2.0, requires_grad=True)]),
        TypeError,
    ),
    "a tracked tensor deep in a list": (
        lambda: ruda.asarray([[1.0, 2.0], [1.0, ruda.tensor(2.0, requires_grad=True)]]),
        TypeError,
    ),
    "complex values in a real dtype": (lambda: ruda.asarray([1j], dtype="float32"), TypeError),
    "a complex array in a real dtype": (
        lambda: ruda.asarray(np.array([1j]), dtype="float32"),
        TypeError,
    ),
    "an integer beyond int32": (lambda: ruda.asarray([2**40]), OverflowError),
    "an integer beyond int64": (lambda: ruda.asarray([1, 2**63]), OverflowError),
    "integers on both sides of int64": (lambda: ruda.asarray([-1, 2**63]), OverflowError),
    "a negative unsigned": (lambda: ruda.asarray([-1, 2**63], dtype="uint64"), OverflowError),
    "an integer beyond the dtype": (lambda: ruda.asarray([300], dtype="int8"), OverflowError),
    "an integer no float holds": (lambda: ruda.asarray(HUGE, dtype="float32"), OverflowError),
    "full of one": (lambda: ruda.full((2,), HUGE, dtype="float64"), OverflowError),
    "full beyond the dtype": (lambda: ruda.full((2,), 300, dtype="int8"), OverflowError),
    "full of a fraction": (lambda: ruda.full((2,), 1.5, dtype="int32"), TypeError),
    "full of a list": (lambda: ruda.full((2,), [1, 2]), TypeError),
    "a range to NaN": (lambda: ruda.arange(float("nan")), ValueError),
    "a range to infinity": (lambda: ruda.arange(float("inf")), ValueError),
    "a range of strings": (lambda: ruda.arange("a"), TypeError),
    "a range without a step": (lambda: ruda.arange(0, 1, 0), ValueError),
    "a huge end": (lambda: ruda.linspace(0, HUGE, 3), OverflowError),
    "half an element": (lambda: ruda.linspace(0, 1, 2.5), TypeError),  # type: ignore[arg-type]
    "a negative size": (lambda: ruda.zeros(-1), ValueError),
    "a size of 1.5": (lambda: ruda.zeros(1.5), TypeError),
    "a size as text": (lambda: ruda.zeros("3"), TypeError),
    "an unknown dtype": (lambda: ruda.zeros(2, dtype="float31"), TypeError),
    "Python's float as dtype": (lambda: ruda.zeros(2, dtype=float), TypeError),
    "an unknown device": (lambda: ruda.zeros(2, device="tpu"), RuntimeError),
    "mixed devices": (lambda: floats + nowhere, RuntimeError),
    "mixed devices, NumPy": (lambda: nowhere * np.ones(3), RuntimeError),
    "mixed devices, assigned": (lambda: floats.assign(nowhere), RuntimeError),
    "mixed devices, as index": (lambda: floats[nowhere.astype("int32")], RuntimeError),
    "mixed devices, as gradient": (
        lambda: (ruda.tensor([1.0], requires_grad=True) * 2).backward(ruda.ones(1, device="null")),
        RuntimeError,
    ),
    "a float index": (lambda: floats[1.0], TypeError),
    "a NumPy float index": (lambda: floats[np.float64(1)], TypeError),
    "a list of floats as index": (lambda: floats[[1.0]], TypeError),
    "a float tensor as index": (lambda: floats[floats], TypeError),
    "a float bound": (lambda: floats[:1.5], TypeError),  # type: ignore[misc]
    "a float index written to": (lambda: floats.__setitem__(1.0, 0), TypeError),
    "text as index": (lambda: floats["a"], TypeError),
    "an object index": (lambda: floats[np.array([0], object)], TypeError),
    "too many indices": (lambda: floats[0, 0], IndexError),
    "two ellipses": (lambda: matrix[..., ...], IndexError),
    "a step of zero": (lambda: floats[::0], ValueError),
    "a mask of another length": (lambda: floats[[True, False]], IndexError),
    "an axis out of range": (lambda: matrix.sum(axis=2), IndexError),
    "an axis named twice": (lambda: matrix.sum(axis=(0, -2)), ValueError),
    "an axis of 0.5": (lambda: matrix.sum(axis=0.5), TypeError),
    "an order with an axis twice": (lambda: matrix.permute_dims((0, 0)), ValueError),
    "an order that is a number": (lambda: matrix.permute_dims(0), TypeError),  # type: ignore[arg-type]
    "the smallest of nothing": (lambda: ruda.min(ruda.zeros(0)), ValueError),
    "the place of the largest of nothing": (lambda: ruda.argmax(ruda.zeros((2, 0))), ValueError),
    "two dtypes without a common one": (
        lambda: ruda.asarray([1], dtype="int64") + ruda.asarray([1], dtype="uint64"),
        TypeError,
    ),
    "a difference of masks": (lambda: mask - mask, TypeError),
    "a negative mask": (lambda: -mask, TypeError),
    "bits of floats": (lambda: floats & floats, TypeError),
    "an order of complex numbers": (lambda: waves < waves, TypeError),
    "a complex remainder": (lambda: waves % waves, TypeError),
    "a negative power of integers": (lambda: whole**-1, ValueError),
    "a tensor of negative powers": (lambda: whole**-whole, ValueError),
    "an integer that does not fit": (lambda: small + 200, OverflowError),
    "one on the left": (lambda: 200 - small, OverflowError),
    "one compared with": (lambda: small < 300, OverflowError),
    "a negative compared with unsigned": (lambda: unsigned == -1, OverflowError),
    "one chosen": (lambda: ruda.where(mask, small, 300), OverflowError),
    "one chosen first": (lambda: ruda.where(mask, -129, small), OverflowError),
    "a bound": (lambda: ruda.clip(unsigned, -1, 3), OverflowError),
    "one assigned": (lambda: ruda.copy(small).assign(300), OverflowError),
    "one assigned by key": (lambda: ruda.copy(small).__setitem__(0, 300), OverflowError),
    "one assigned by list": (lambda: ruda.copy(small).__setitem__([0], 300), OverflowError),
    "one assigned by mask": (lambda: ruda.copy(small).__setitem__(mask, 300), OverflowError),
    "a huge one": (lambda: floats + HUGE, OverflowError),
    "a huge one on the left": (lambda: HUGE / floats, OverflowError),
    "a huge one compared with": (lambda: floats < HUGE, OverflowError),
    "a huge one with complex": (lambda: waves * -HUGE, OverflowError),
    "a huge one chosen": (lambda: ruda.where(mask, floats, HUGE), OverflowError),
    "a huge one as bound": (lambda: ruda.clip(floats, 0, HUGE), OverflowError),
    "a huge one assigned": (lambda: ruda.copy(floats).assign(HUGE), OverflowError),
    "a huge one in place": (lambda: ruda.copy(floats).__imul__(HUGE), OverflowError),
    "a fraction into integers": (lambda: ruda.copy(whole).assign(0.5), TypeError),
    "a fraction in place": (lambda: ruda.copy(whole).__iadd__(0.5), TypeError),
    "complex into real": (lambda: ruda.copy(floats).__setitem__(0, 1j), TypeError),
    "text assigned": (lambda: ruda.copy(floats).assign("a"), TypeError),
    "a larger value in place": (lambda: ruda.copy(floats).__iadd__(matrix[:, :1]), ValueError),
    "shapes that do not broadcast": (lambda: floats + ruda.ones(4), ValueError),
    "a reshape that does not fit": (lambda: matrix.reshape((5, -1)), ValueError),
    "two unknown sizes": (lambda: matrix.reshape((-1, -1)), ValueError),
    "an item of several": (lambda: floats.item(), ValueError),
    "truth of several": (lambda: bool(floats), ValueError),
    "truth of none": (lambda: bool(ruda.zeros(0)), ValueError),
    "a length of a scalar": (lambda: len(ruda.asarray(1.0)), TypeError),
    "iteration of a scalar": (lambda: list(ruda.asarray(1.0)), TypeError),
    "a float of complex": (lambda: float(waves[0]), TypeError),
    "an index made of a float": (lambda: [1, 2][floats[0]], TypeError),  # type: ignore[call-overload]
    "a number's format for several": (lambda: f"{floats:.2f}", ValueError),
    "complex to real": (lambda: waves.astype("float32"), TypeError),
    "joining nothing": (lambda: ruda.concat([]), ValueError),
    "joining a tensor": (lambda: ruda.concat(matrix), TypeError),
    "joining other shapes": (lambda: ruda.stack([floats, matrix]), ValueError),
    "unknown kinds": (lambda: ruda.isdtype(ruda.int8, "whole"), ValueError),
    "a version of the standard": (
        lambda: floats.__array_namespace__(api_version="1999"),
        ValueError,
    ),
    "a stream of the CPU": (lambda: floats.to_device("cpu", stream=1), ValueError),
    "pinned memory": (lambda: ruda.empty(2, pin=True), RuntimeError),
    "reading from nowhere": (lambda: nowhere.numpy(), RuntimeError),
    "a shared object that is none": (lambda: ruda.from_dlpack(3), TypeError),
}


@pytest.mark.parametrize("name", CASES)
def test_it_raises_a_typed_error_in_the_house_form(name: str) -> None:
    call, builtin = CASES[name]
    before = [t.tolist() for t in (floats, whole, small, unsigned, mask, waves)]
    with pytest.raises(RudaError) as caught:
        call()
    error = caught.value
    assert isinstance(error, builtin)
    text = str(error)
    assert text == text.strip() and len(text) < 500
    parts = [re.escape(f"{error.op}: {error.what}.")]
    parts += [r"Got .*\."] if error.got is not None else []
    parts += [r"Expected .*\."] if error.expected is not None else []
    parts += [r"Try .*\."] if error.hint is not None else []
    assert re.fullmatch(" ".join(parts), text, re.DOTALL)
    assert [t.tolist() for t in (floats, whole, small, unsigned, mask, waves)] == before


FOREIGN = ["a", b"a", None, [1, 2, 3], (1, 2, 3), {1}, object(), np.str_("3"), np.bytes_(b"3")]


@pytest.mark.parametrize("other", FOREIGN, ids=lambda v: type(v).__name__)
def test_operators_leave_foreign_operands_to_python(other: Any) -> None:
    for call in (
        lambda: floats + other,
        lambda: (
            other * floats if not isinstance(other, list | tuple | str | bytes) else floats * other
        ),
        lambda: floats < other,
        lambda: floats @ other,
        lambda: operator.iadd(ruda.copy(floats), other),
    ):
        with pytest.raises(TypeError):
            call()
    assert (floats == other) is False and (floats != other) is True and other not in floats
    with pytest.raises(ruda.DTypeError, match=r"^add: not an operand\. Got .* Expected .* Try"):
        ruda.add(floats, other)


def test_an_integer_of_many_digits_does_not_break_the_message() -> None:
    with pytest.raises(ruda.IntegerRangeError, match="an integer of 33220 bits"):
        whole + 10**10_000


def test_a_truncated_file_changes_nothing(tmp_path: Any) -> None:
    path = tmp_path / "model.safetensors"
    store.save(path, {"w": ruda.arange(12.0)})
    full = path.read_bytes()
    for cut in (0, 7, 8, 20, len(full) - 1):
        path.write_bytes(full[:cut])
        with pytest.raises(ruda.StoreError):
            store.load(path)
    path.write_bytes(b"\xff" * 8 + full[8:])
    with pytest.raises(ruda.StoreError):
        store.load(path)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("full", lambda: ruda.zeros((1 << 50,))),
        ("add", lambda: ruda.ones(1).broadcast_to((1 << 50,)) + 1),
        ("cumsum", lambda: ruda.cumsum(ruda.ones(1).broadcast_to((1 << 50,)))),
    ],
)
def test_memory_that_is_not_there_is_told_in_the_operators_name(name: str, call: Any) -> None:
    with pytest.raises(MemoryError, match=rf"^{name}: the CPU is out of memory. Got .* Try ") as e:
        call()
    assert isinstance(e.value, ruda.OutOfMemoryError)
