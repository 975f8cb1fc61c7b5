"""Which arithmetic faster than IEEE the compute-bound operators may use, and how to ask for it.

A setting is a permission: where a device has no such arithmetic, IEEE runs, and
``explain_precision`` says so. Backward runs in the precision that forward ran in.
"""

from __future__ import annotations

from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.errors import ArgumentError
from ruda.core.mode import IEEE, MODE, Mode, ModeSwitch, Precision

_ALLOWED = {str: ("ieee", "tf32"), bool: (False, True)}


def precision(
    *,
    matmul: str | None = None,
    conv: str | None = None,
    rnn: str | None = None,
    half_reduction: bool | None = None,
    fp16_accumulate: bool | None = None,
) -> ModeSwitch:
    """Allow faster arithmetic inside the block, or inside the decorated function.

    ``matmul``, ``conv`` and ``rnn`` are ``"ieee"`` or ``"tf32"``, the others booleans; what is
    not given stays as it is around the block. Raises ``ArgumentError`` for any other value.

    >>> with precision(matmul="tf32"):
    ...     print(explain_precision("cpu").splitlines()[0])
    matmul: ieee (tf32 is allowed; cpu has no such arithmetic)
    """
    given = (matmul, conv, rnn, half_reduction, fp16_accumulate)
    changes: dict[str, Any] = {
        n: v for n, v in zip(Precision._fields, given, strict=True) if v is not None
    }
    for name, value in changes.items():
        _check(name, value)

    def change(mode: Mode) -> Mode:
        wanted = (mode.precision or IEEE)._replace(**changes)
        return mode.but(precision=None if wanted == IEEE else wanted)

    return ModeSwitch(change)


def _check(name: str, value: Any) -> None:
    allowed = _ALLOWED[type(getattr(IEEE, name))]
    if type(value) is not type(allowed[0]) or value not in allowed:
        expected = " or ".join(map(repr, allowed))
        raise ArgumentError("precision", f"unknown value of {name}", repr(value), expected)


def explain_precision(device: Any = None) -> str:
    """What runs on ``device`` under the settings in force here, one line per setting."""
    client = client_of(device)
    lines = []
    for name, wanted in zip(Precision._fields, MODE.get().precision or IEEE, strict=True):
        default = getattr(IEEE, name)
        runs = wanted == default or wanted in client.precisions.get(name, ())
        note = "" if runs else f" ({wanted} is allowed; {client.device} has no such arithmetic)"
        lines.append(f"{name}: {wanted if runs else default}{note}")
    return "\n".join(lines)
