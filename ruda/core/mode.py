"""How operators run in this context: recorded, traced, cast. One ContextVar holds all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ruda.core.dtypes import DType, as_dtype
from ruda.core.errors import DTypeError

if TYPE_CHECKING:
    from ruda.core.contracts import Recorder, Tracer


class Precision(NamedTuple):
    """What arithmetic is allowed: ``"tf32"`` rounds float32 factors to 10 bits of mantissa.

    ``half_reduction`` lets partial sums of half products be added in the half type,
    ``fp16_accumulate`` lets float16 products accumulate in float16.
    """

    matmul: str = "ieee"
    conv: str = "ieee"
    rnn: str = "ieee"
    half_reduction: bool = False
    fp16_accumulate: bool = False


IEEE = Precision()


class Mode:
    """What the dispatcher reads once per call.

    ``grad``: record operators on the tape. ``cast``: the low dtype of ``autocast``, or None.
    ``tracer``: who gets the launches instead of the device, or None. ``recorder``: who is told of
    nodes, draws and assignments while ``checkpoint`` runs a function, or None. ``precision``: the
    faster arithmetic that is allowed, or None for IEEE everywhere. ``special`` says that one of
    these four is set, so that the hot path tests a single attribute, and ``beyond`` that it is not
    ``cast`` alone, which most operators do not look at. ``last`` says that a backward walk runs a
    vjp and lets go of what its node saved afterwards, ``ones`` are handles that it began with and
    filled with ones itself.
    """

    __slots__ = (
        "beyond",
        "cast",
        "grad",
        "last",
        "ones",
        "precision",
        "recorder",
        "special",
        "tracer",
    )

    def __init__(
        self,
        grad: bool = True,
        cast: DType | None = None,
        tracer: Tracer | None = None,
        recorder: Recorder | None = None,
        precision: Precision | None = None,
        last: bool = False,
        ones: tuple[Any, ...] = (),
    ) -> None:
        self.grad = grad
        self.last = last
        self.ones = ones
        self.cast = cast
        self.tracer = tracer
        self.recorder = recorder
        self.precision = precision
        self.beyond = (tracer, recorder, precision).count(None) < 3
        self.special = self.beyond or cast is not None

    @property
    def watched(self) -> bool:
        """Whether somebody gets the launches, or is told of them."""
        return self.tracer is not None or self.recorder is not None

    def but(self, **changes: Any) -> Mode:
        """This mode with some fields changed."""
        return Mode(**{name: getattr(self, name) for name in _FIELDS} | changes)


_FIELDS = ("grad", "cast", "tracer", "recorder", "precision", "last", "ones")
MODE: ContextVar[Mode] = ContextVar("ruda.mode", default=Mode())


class Using:
    """A block that runs under ``mode``; each is entered once."""

    __slots__ = ("mode", "token")

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    def __enter__(self) -> Mode:
        self.token = MODE.set(self.mode)
        return self.mode

    def __exit__(self, *_: object) -> None:
        MODE.reset(self.token)


_PLAIN = (Mode(False), Mode(True))
_LAST = Mode(False, last=True)


def recording(grad: bool, **changes: Any) -> Using:
    """Run the block with the tape on or off, without autocast, in IEEE: how backward runs vjps.

    A trace goes on; ``changes`` set further fields of the mode.
    """
    tracer = MODE.get().tracer
    if tracer is None and not changes:
        return Using(_PLAIN[grad])
    return Using(Mode(grad, tracer=tracer, **changes))


def pulling(create_graph: bool, retain_graph: bool, ones: tuple[Any, ...] = ()) -> Using:
    """As ``recording``, for the vjps of a walk; outside of a trace they know when it is the last.

    Nodes that are recorded again are never walked for the last time. The last walk also tells the
    handles that it began with, ``ones``.
    """
    mode = MODE.get()
    if create_graph or retain_graph or mode.tracer is not None:
        return recording(create_graph)
    return Using(Mode(False, last=True, ones=ones) if ones else _LAST)


class ModeSwitch(ContextDecorator):
    """A context manager and decorator that changes the mode for the time of a block or call."""

    def __init__(self, change: Callable[[Mode], Mode]) -> None:
        self._change = change
        self._tokens: list[Token[Mode]] = []

    def _recreate_cm(self) -> Self:
        # A decorated function may recurse or run in several threads: each call owns its tokens.
        return type(self)(self._change)

    def __enter__(self) -> None:
        self._tokens.append(MODE.set(self._change(MODE.get())))

    def __exit__(self, *_: object) -> None:
        MODE.reset(self._tokens.pop())


def no_grad() -> ModeSwitch:
    """Record nothing on the tape inside the block, or inside the decorated function.

    >>> weight = ruda.tensor([1.0], requires_grad=True)
    >>> with ruda.no_grad():
    ...     (weight * 2).requires_grad
    False
    """
    return ModeSwitch(lambda mode: mode.but(grad=False) if mode.special else _PLAIN[False])


def enable_grad() -> ModeSwitch:
    """Record again inside a ``no_grad`` block."""
    return ModeSwitch(lambda mode: mode.but(grad=True))


def inference_mode() -> ModeSwitch:
    """Run without a tape; the same as ``no_grad``, since an untracked operator builds no node."""
    return no_grad()


def autocast(dtype: Any = "bfloat16", enabled: bool = True) -> ModeSwitch:
    """Run matmuls, convolutions and attention in ``dtype``, norms and losses in float32.

    Which operators are lowered or raised is the ``cast`` column of the operator table. Raises
    ``DTypeError`` unless ``dtype`` is float16 or bfloat16.

    >>> x = ruda.ones((2, 2))
    >>> with ruda.autocast("bfloat16"):
    ...     (x @ x).dtype, ruda.nn.functional.softmax(x).dtype
    (ruda.bfloat16, ruda.float32)
    """
    low = as_dtype(dtype, "autocast")
    if not low.is_half:
        raise DTypeError("autocast", "not a half dtype", got=low, expected="float16 or bfloat16")
    return ModeSwitch(lambda mode: mode.but(cast=low if enabled else None))


def is_grad_enabled() -> bool:
    """Whether operators are being recorded here."""
    return MODE.get().grad


class Changes:
    """``mark`` is another object after each change of what it stands for."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark = object()


# The fields of any module, optimizer or schedule; and the node of any tensor that is there already.
CHANGES, NODES = Changes(), Changes()
_MISSING = object()
_SCALARS = (bool, int, float, str, type(None))


def state_changed(owner: Any, name: str, value: Any) -> None:
    """Announce that ``owner.name`` is about to become ``value``.

    Modules, optimizers and schedules call this before they change. It counts
    ``owner._ruda_version`` up, so that compiled steps look at the fields of ``owner`` again; a
    running trace refuses the change. Setting what is already there is no change.
    """
    before = vars(owner).get(name, _MISSING)
    same_kind = before.__class__ is value.__class__ and before.__class__ in _SCALARS
    if before is value or (same_kind and before == value):
        return
    tracer = MODE.get().tracer
    if tracer is not None:
        tracer.state_changed(owner, name, value)
    object.__setattr__(owner, "_ruda_version", getattr(owner, "_ruda_version", 0) + 1)
    CHANGES.mark = object()
