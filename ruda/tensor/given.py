"""What a function says that was given a list or an array where it takes a tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ruda.core.errors import DTypeError

Function = TypeVar("Function", bound=Callable[..., Any])


class NotATensor(DTypeError):
    """An argument that is no tensor; ``argument`` is that object."""

    argument: Any = None


def given_tensors(function: Function) -> Function:
    """Let ``function``, which reads attributes of tensors, refuse other arguments in its own name.

    Nothing is looked at before the call: what has the attributes that are read is as good as a
    tensor, and a call that goes well pays for one more call only.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AttributeError, NotATensor) as error:
            refused = _refused(function.__name__, error, (*args, *kwargs.values()))
            if refused is None:
                raise
            raise refused from None

    return cast("Function", call)


def _refused(name: str, error: Any, arguments: tuple[Any, ...]) -> NotATensor | None:
    """The error for the argument that ``error`` is about, None if it is about something else."""
    missed = error.argument if isinstance(error, NotATensor) else error.obj
    lists = [a for a in arguments if isinstance(a, list | tuple | str)]
    # A list whose items are what lacks the attribute stands for the tensor that it is not, and an
    # array may lack it itself or in what was read from it.
    found = [a for a in arguments if a is missed]
    found += [a for a in lists if any(v is missed for v in a)]
    found += [a for a in arguments if type(a).__module__ == "numpy"]
    if not found or not (isinstance(found[0], _VALUES) or type(found[0]).__module__ == "numpy"):
        return None
    bad = found[0]
    got = f"{bad!r:.60} of type {type(bad).__name__}"
    refused = NotATensor(name, "not a tensor", got, "a ruda tensor", "ruda.asarray(...)")
    refused.argument = bad
    return refused


# What people mean as values, beside what is NumPy's; an AttributeError about anything else is a
# mistake of another kind.
_VALUES = (list, tuple, bool, int, float, complex, str, type(None))
