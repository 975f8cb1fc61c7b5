"""Which dtype values of several dtypes meet in, and which cast is free of surprises."""

from __future__ import annotations

from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import as_dtype, promote
from ruda.core.errors import ArgumentError, DTypeError
from ruda.core.spec import Spec, promote_specs, spec_of
from ruda.tensor.operands import operand
from ruda.tensor.tensor import RudaTensor


def _spec(value: Any, client: Any) -> Spec:
    found = operand("result_type", value, client)
    if found is not None:
        return found[0]
    return spec_of(client, (), as_dtype(value, "result_type"))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that tensors, dtypes and Python scalars meet in; scalars give way to the others.

    Raises ``DTypeError`` where nothing holds all of them (int64 with uint64).

    >>> result_type(ruda.int8, ruda.float32, 1.5)
    ruda.float32
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type", "nothing to combine", expected="at least one argument")
    tensors = (v.client for v in arrays_and_dtypes if v.__class__ is RudaTensor)
    client = next(tensors, None) or client_of()
    return promote_specs(tuple(_spec(v, client) for v in arrays_and_dtypes))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion alone turns ``from_``, a tensor or dtype, into the dtype ``to``.

    >>> can_cast(ruda.int8, ruda.int32), can_cast(ruda.float32, ruda.int32)
    (True, False)
    """
    source = from_.dtype if from_.__class__ is RudaTensor else as_dtype(from_, "can_cast")
    target = as_dtype(to, "can_cast")
    try:
        return promote(source, target) is target
    except DTypeError:
        return False
