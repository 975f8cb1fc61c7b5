"""The one tensor class: four slots, facts read off the spec, and access to values.

Operators become methods when ``ruda.ops`` is imported (``tensor/methods.py``); what is written here
is what needs no operator.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ruda.core.devices import client as client_of
from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ruda.core.mode import MODE, NODES
from ruda.core.shapes import Shape, index, normalize_shape
from ruda.core.spec import Spec, spec_of
from ruda.tensor import dlpack, host
from ruda.tensor.elsewhere import NAMES
from ruda.tensor.marks import is_parameter, mark
from ruda.tensor.node import Leaf, grad_of, set_grad
from ruda.tensor.views import note, sharing

if TYPE_CHECKING:
    from ruda.core.devices import Device
    from ruda.core.dtypes import DType
    from ruda.tensor.attached import Attached
else:
    # The operators that become methods at import are declared in a generated stub.
    Attached = object


class Metadata(NamedTuple):
    """Geometry of a tensor: shape, strides in elements (None: row-major), offset in elements."""

    shape: Shape
    strides: Shape | None = None
    offset: int = 0


def _checked(metadata: Any) -> Metadata:
    """``metadata``, a shape or a whole ``Metadata``, as tuples of integers that fit together."""
    if not isinstance(metadata, Metadata):
        metadata = Metadata(metadata)
    shape = normalize_shape(metadata.shape, "RudaTensor")
    strides = metadata.strides
    if strides is not None:
        strides = tuple(index(step, "RudaTensor", "a stride") for step in strides)
        if len(strides) != len(shape):
            expected = f"one stride per axis of {shape}"
            raise ShapeError("RudaTensor", "strides do not fit the shape", strides, expected)
    return Metadata(shape, strides, index(metadata.offset, "RudaTensor", "the offset"))


class RudaTensor(Attached):
    """An n-dimensional array on a device.

    ``RudaTensor(client, handle, metadata, dtype, qparams)`` is the checked constructor over memory
    that a client already holds; ``ruda.tensor`` and ``ruda.asarray`` make tensors from data.

    Raises ``ShapeError`` when the geometry does not fit the memory, ``DTypeError`` when the dtype
    does not, ``DeviceError`` when the client is none or the memory is another's.
    """

    __slots__ = ("__weakref__", "_leaf", "handle", "node", "qparams", "spec")

    # An ndarray on the left must ask ruda first: otherwise `array * tensor` is silently an ndarray.
    __array_ufunc__ = None

    spec: Spec
    handle: Any
    qparams: Any
    node: Any
    # The leaf of a tensor that does not ask for a gradient any more, for when it does again.
    _leaf: Leaf

    # Only the client has no default: whoever passes data is told of ``ruda.tensor``.
    def __init__(
        self,
        client: Any,
        handle: Any = None,
        metadata: Any = None,
        dtype: Any = None,
        qparams: Any = None,
    ) -> None:
        if not callable(getattr(client, "view", None)):
            hint = "ruda.tensor(data), or the client of another tensor"
            got = type(client).__name__
            raise DeviceError("RudaTensor", "not a client", got, "the client of a device", hint)
        shape, strides, offset = _checked(metadata)
        self.spec = spec_of(client, shape, as_dtype(dtype, "RudaTensor"), strides)
        self.handle = client.view(handle, self.spec, offset)
        self.qparams = qparams
        self.node = None

    @property
    def client(self) -> Any:
        """The client that owns the memory."""
        return self.spec.client

    @property
    def device(self) -> Device:
        """The device that the memory is on; follows from the client."""
        return self.spec.client.device

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype

    @property
    def shape(self) -> Shape:
        """The length of each axis."""
        return self.spec.shape

    @property
    def strides(self) -> Shape:
        """The step of each axis, in elements."""
        return self.spec.strides

    @property
    def metadata(self) -> Metadata:
        """Shape, strides and offset from the start of the memory, in elements."""
        offset = 0 if self.handle.root is None else self.handle.offset
        return Metadata(self.spec.shape, self.spec.strides, offset)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.spec.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.spec.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, shared or repeated ones counted each time."""
        return self.spec.nbytes

    @property
    def is_view(self) -> bool:
        """Whether the memory belongs to another tensor."""
        return self.handle.root is not None

    @property
    def share_count(self) -> int:
        """How many live tensors share this memory, this one included."""
        root = self.handle.root or self.handle
        others = sum(1 for t in sharing(root) if t is not self)
        base_is_other = self.handle.root is not None and (
            self.handle.owner is None or self.handle.owner() is not None
        )
        return 1 + others + base_is_other

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.spec.contiguous

    @property
    def requires_grad(self) -> bool:
        """Whether operators on this tensor are recorded; settable on leaves."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> RudaTensor:
        """Ask for a gradient of this tensor, or stop asking; returns the tensor itself."""
        if value == (self.node is not None):
            return self
        self._tell_tracer("requires_grad")
        if value and self.node is None:
            if not self.spec.dtype.is_inexact:
                expected = "a real or complex floating dtype"
                hint = 'dtype="float32"'
                raise DTypeError("requires_grad", "has no gradient", self.dtype, expected, hint)
            self.node, NODES.mark = self._leaf_again(), object()
        elif not value and self.node is not None:
            if not self.is_leaf:
                hint = "x.detach()"
                raise GradientError("requires_grad", "only a leaf can be switched off", hint=hint)
            if MODE.get().tracer is None:
                self._leaf, self.node.grad = self.node, None
            self.node, NODES.mark = None, object()
        return self

    def _leaf_again(self) -> Leaf:
        """A leaf with nothing on it: the last one, which compiled steps know, or a new one."""
        leaf: Leaf | None = getattr(self, "_leaf", None)
        if leaf is None or MODE.get().tracer is not None:
            return Leaf()
        leaf.grad = leaf.hooks = None
        return leaf

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operator made this tensor."""
        return self.node is None or self.node.__class__ is Leaf

    @property
    def grad(self) -> RudaTensor | None:
        """The gradient that backward has summed up here; None before, and on a non-leaf."""
        leaf = self.node
        if leaf.__class__ is not Leaf:
            return None
        return grad_of(leaf)  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, value: RudaTensor | None) -> None:
        leaf = self.node
        if leaf.__class__ is not Leaf:
            hint = "requires_grad_() first"
            raise GradientError("grad", "only a leaf that requires grad has one", hint=hint)
        if value is not None and not isinstance(value, RudaTensor):
            got = type(value).__name__
            raise DTypeError("grad", "a gradient is a tensor or None", got, "a ruda tensor")
        if value is not None and value.spec.client is not self.spec.client:
            raise DeviceError("grad", "lives elsewhere", value.device, self.device)
        if value is not None and (value.shape != self.shape or value.dtype is not self.dtype):
            raise ShapeError("grad", "does not fit its tensor", value.spec, self.spec)
        set_grad(leaf, value)

    def backward(
        self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of this tensor to ``.grad`` of every leaf it was made from.

        ``gradient`` is dL/d(self), of this tensor's shape; it may be left out for a single
        element. The saved values are freed unless ``retain_graph`` or ``create_graph`` is set.
        """
        _engine().backward(self, gradient, retain_graph or create_graph, create_graph)

    def register_hook(self, hook: Callable[[RudaTensor], RudaTensor | None]) -> Callable[[], None]:
        """Call ``hook(gradient)`` when this tensor's gradient is known; a result replaces it.

        Returns a function that removes the hook.
        """
        if self.node is None:
            raise GradientError("register_hook", "the tensor does not require grad")
        if not callable(hook):
            raise DTypeError("register_hook", "not a function", type(hook).__name__)
        self._tell_tracer("hooks")
        hooks = getattr(self.node, "hooks", None)
        if hooks is None:
            hooks = self.node.hooks = []
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    def _tell_tracer(self, what: str) -> None:
        tracer = MODE.get().tracer
        if tracer is not None:
            tracer.leaf_changed(self, what)

    def detach(self) -> RudaTensor:
        """The same memory as a tensor without history."""
        out: RudaTensor = object.__new__(RudaTensor)
        out.spec, out.qparams, out.node = self.spec, self.qparams, None
        tracer = MODE.get().tracer
        if tracer is None:
            out.handle = self.spec.client.alias(self.handle)
        else:
            out.handle = tracer.alias(self.spec, self.handle)
        note(out.handle.root, out)
        return out

    def numpy(self, copy: bool = False) -> Any:
        """The values as an ndarray: shared and read-only on the CPU, writable with ``copy=True``.

        Waits for the queue that makes the value.
        """
        return host.read(self, "numpy", copy)

    def item(self) -> bool | int | float | complex:
        """The value of a tensor of one element as a Python scalar."""
        return host.item(self, "item")  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars."""
        return host.tolist(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return host.array(self, dtype, copy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return dlpack.export(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dlpack.cuda_interface(self)

    def __bool__(self) -> bool:
        return bool(host.item(self, "bool"))

    def __int__(self) -> int:
        return int(host.real_item(self, "int"))

    def __float__(self) -> float:
        return float(host.real_item(self, "float"))

    def __complex__(self) -> complex:
        return complex(host.item(self, "complex"))

    def __index__(self) -> int:
        return host.integer_item(self)

    def __len__(self) -> int:
        if not self.spec.shape:
            raise DTypeError("len", "a 0-d tensor has no length")
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[RudaTensor]:
        if not self.spec.shape:
            raise DTypeError("iter", "a 0-d tensor cannot be iterated over", hint="x.item()")
        return (self[i] for i in range(self.spec.shape[0]))

    def __contains__(self, value: Any) -> bool:
        found = self == value
        return bool(found.any()) if found.__class__ is RudaTensor else found

    def __hash__(self) -> int:
        return id(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            hint = "2024.12 or older"
            raise ArgumentError("__array_namespace__", "unknown version", api_version, hint=hint)
        return importlib.import_module("ruda")

    def __repr__(self) -> str:
        return host.text(self, "repr")

    def __str__(self) -> str:
        # Showing values is reading them, which a trace refuses; repr stays usable in a debugger.
        return host.text(self, "print")

    def _repr_html_(self) -> str:
        return host.html(self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in NAMES]

    def __format__(self, spec: str) -> str:
        if spec and self.spec.size == 1:
            return format(host.item(self, "format"), spec)
        try:
            return format(str(self), spec)
        except ValueError:
            expected, hint = "one element for a number's format", "format(x.item(), spec)"
            raise ArgumentError("format", "cannot apply", repr(spec), expected, hint) from None

    def __copy__(self) -> RudaTensor:
        if not self.is_leaf:
            # Not a leaf of its own: gradients through a copy reach what it was made from.
            return self.reshape(self.shape)
        out = self.detach().requires_grad_(self.requires_grad)
        return mark(out) if is_parameter(self) else out

    def __deepcopy__(self, memo: dict[int, Any]) -> RudaTensor:
        if not self.is_leaf:
            hint = "x.detach() or a leaf"
            raise GradientError("deepcopy", "only leaves can be copied deeply", hint=hint)
        values = host.read(self, "deepcopy", True)
        out = rebuild(values, self.device, self.requires_grad, is_parameter(self))
        if self.node is not None and self.node.grad is not None:
            out.node.grad = self.node.grad.__deepcopy__(memo)
        memo[id(self)] = out
        return out

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise GradientError("pickle", "only leaves can be pickled", hint="x.detach()")
        values = host.read(self, "pickle", True)
        return rebuild, (values, str(self.device), self.requires_grad, is_parameter(self))


@functools.cache
def _engine() -> Any:
    """The engine, which is written in operators on tensors."""
    return importlib.import_module("ruda.autodiff.engine")


def wrap(spec: Spec, handle: Any, node: Any = None) -> RudaTensor:
    """A tensor over ``handle`` without any check; for operators and the engine."""
    out: RudaTensor = object.__new__(RudaTensor)
    out.spec, out.handle, out.qparams, out.node = spec, handle, None, node
    return out


def from_array(values: Any, device: Any = None, *, share: bool = True) -> RudaTensor:
    """A tensor over an ndarray, sharing its memory if ``share`` and the client can.

    Inside a trace the values are a constant that each replay starts from afresh.
    """
    client = client_of(device)
    dtype = as_dtype(values.dtype, "asarray")
    strides, handle = client.adopt(values if share else values.copy())
    spec = spec_of(client, values.shape, dtype, strides)
    tracer = MODE.get().tracer
    return wrap(spec, handle) if tracer is None else tracer.constant(spec, handle)


def rebuild(values: Any, device: Any, requires_grad: bool, parameter: bool = False) -> RudaTensor:
    """A tensor on ``device`` that takes over ``values``; what pickle and deepcopy call."""
    out = from_array(values, device).requires_grad_(requires_grad)
    return mark(out) if parameter else out
