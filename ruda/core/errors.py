"""The tree of ruda's exceptions: fields first, text derived from them.

Each class also derives from the builtin that a user would catch, so that ``except ValueError``
keeps working for people who have never heard of ruda's names.
"""

from __future__ import annotations

from typing import Any, Self


class RudaError(Exception):
    """Base of every error that ruda raises.

    Fields: ``op`` (the operator or function), ``what`` (what is wrong), ``got``, ``expected`` and
    ``hint`` (what to try); the last three may be None.
    """

    def __init__(
        self, op: str, what: str, got: Any = None, expected: Any = None, hint: str | None = None
    ) -> None:
        super().__init__(op, what, got, expected, hint)
        self.op = op
        self.what = what
        self.got = got
        self.expected = expected
        self.hint = hint

    def renamed(self, op: str) -> Self:
        """This error in the name of ``op``, the function that a user called."""
        self.op = op
        self.args = (op, *self.args[1:])
        return self

    def __str__(self) -> str:
        parts = [f"{self.op}: {self.what}."]
        if self.got is not None:
            parts.append(f"Got {_shown(self.got)}.")
        if self.expected is not None:
            parts.append(f"Expected {self.expected}.")
        if self.hint is not None:
            parts.append(f"Try {self.hint}.")
        return " ".join(parts)


def _shown(value: Any) -> Any:
    # Python refuses to print integers of thousands of digits, and nobody could read them.
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return value


class ShapeError(RudaError, ValueError):
    """Shapes, ranks or sizes that do not fit."""


class AxisError(ShapeError, IndexError):
    """An axis that is out of range or named twice."""


class MaskError(ShapeError, IndexError):
    """A boolean mask whose shape does not fit the axes it selects from."""


class DTypeError(RudaError, TypeError):
    """A dtype, or the type of a Python value, that an operator does not take."""


class ArgumentError(RudaError, ValueError):
    """An argument whose value is not allowed."""


class LinAlgError(RudaError, ValueError):
    """A matrix that a decomposition or solve cannot handle, such as a singular one."""


class IndexRangeError(RudaError, IndexError):
    """An index outside the axis it selects from."""


class IntegerRangeError(RudaError, OverflowError):
    """A Python integer that does not fit the dtype it would have to take."""


class DeviceError(RudaError, RuntimeError):
    """A device that is absent, or operands that live on different devices."""


class OutOfMemoryError(RudaError, MemoryError):
    """The device has no memory for a result."""


class StrategyError(RudaError, RuntimeError):
    """A requested strategy that cannot run; it is never replaced silently."""


class GradientError(RudaError, RuntimeError):
    """A backward pass that cannot be done."""


class VersionError(GradientError):
    """A value saved for backward was changed in place afterwards."""


class CaptureError(RudaError, RuntimeError):
    """Something that a compiled step cannot hold, such as reading a value while tracing."""


class StoreError(RudaError, ValueError):
    """A file that is not what its format promises, or tensors that it cannot hold.

    Fields besides the common ones: ``path`` and, where one tensor is at fault, its name
    ``tensor``; ``what`` names both.
    """

    def __init__(
        self,
        op: str,
        what: str,
        got: Any = None,
        expected: Any = None,
        hint: str | None = None,
        path: str | None = None,
        tensor: str | None = None,
    ) -> None:
        place = "" if tensor is None else f" for tensor {tensor[:80]!r}"
        place += "" if path is None else f" in {path!r}"
        super().__init__(op, what + place, got, expected, hint)
        # What pickling calls the class with again.
        self.args = (op, what, got, expected, hint, path, tensor)
        self.path = path
        self.tensor = tensor


class AttentionSetupError(RudaError, ValueError):
    """Arguments of attention that do not fit together."""


class AttentionShapeError(AttentionSetupError, ShapeError):
    """Shapes of attention's inputs that do not fit together."""


class AttentionDTypeError(AttentionSetupError, DTypeError):
    """Dtypes of attention's inputs that do not fit together."""


class ConvSetupError(RudaError, ValueError):
    """Arguments of a convolution that do not fit together."""


class ConvShapeError(ConvSetupError, ShapeError):
    """Shapes of a convolution's inputs that do not fit together."""


class ConvDTypeError(ConvSetupError, DTypeError):
    """Dtypes of a convolution's inputs that do not fit together."""


class NormalizationError(RudaError, ValueError):
    """Arguments of a normalization or softmax that do not fit together."""


class NormalizationShapeError(NormalizationError, ShapeError):
    """Shapes of a normalization's inputs that do not fit together."""


class NormalizationDTypeError(NormalizationError, DTypeError):
    """Dtypes of a normalization's inputs that do not fit together."""
