"""Attributes of modules that are computed from other parameters, such as normalised weights.

``register_parametrization(module, "weight", f)`` makes ``module.weight`` the value of ``f`` at a
parameter ``module.parametrizations.weight.original``; assigning to it goes through
``f.right_inverse``. Names are those of PyTorch, so that checkpoints load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.mode import no_grad
from ruda.core.shapes import normalize_axis
from ruda.nn.containers import ModuleDict
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.arith import maximum
from ruda.ops.matmul import matmul, vecdot
from ruda.ops.movement import matrix_transpose, moveaxis, reshape
from ruda.ops.random import normal
from ruda.ops.statistics import vector_norm
from ruda.tensor.marks import is_parameter
from ruda.tensor.tensor import RudaTensor

Function = Callable[..., RudaTensor]


class _Function(Module):
    """A function as a parametrization, with a right inverse if one is given."""

    def __init__(self, function: Function, right_inverse: Function | None) -> None:
        super().__init__()
        self.function = function
        self.inverse = right_inverse

    def forward(self, *originals: RudaTensor) -> RudaTensor:
        """The value of the function."""
        return self.function(*originals)

    def right_inverse(self, value: RudaTensor) -> Any:
        """What the function makes ``value`` of; ``value`` itself unless the inverse is known."""
        return value if self.inverse is None else self.inverse(value)


class Parametrization(Module):
    """The originals of one attribute and the modules, ``"0"``, ``"1"``, …, applied in turn."""

    def __init__(self, value: RudaTensor, first: Module) -> None:
        super().__init__()
        with no_grad():
            originals = _inverse(first, value)
        self.count = len(originals) if isinstance(originals, tuple) else 0
        for name, original in zip(self._names(), _several(originals), strict=True):
            leaf = original.detach().copy()
            if is_parameter(value):
                setattr(self, name, Parameter(leaf, value.requires_grad))
            else:
                self.register_buffer(name, leaf)
        setattr(self, "0", first)

    def _names(self) -> list[str]:
        return [f"original{i}" for i in range(self.count)] if self.count else ["original"]

    def chain(self) -> list[Any]:
        """The parametrizations in the order they are applied in."""
        return list(self.children())

    def append(self, parametrization: Module) -> None:
        """Apply one more to the result of those before it, leaving the value near what it was."""
        value = self()
        setattr(self, str(len(self.chain())), parametrization)
        self.assign(value)

    def forward(self) -> RudaTensor:
        """The value of the attribute."""
        first, *rest = self.chain()
        value = first(*(getattr(self, name) for name in self._names()))
        for parametrization in rest:
            value = parametrization(value)
        return value

    def assign(self, value: Any) -> None:
        """Write originals whose value is ``value``, as far as the right inverses know."""
        if not isinstance(value, RudaTensor):
            raise DTypeError("parametrize", "not a tensor", type(value).__name__)
        with no_grad():
            for parametrization in reversed(self.chain()):
                value = _inverse(parametrization, value)
            for name, original in zip(self._names(), _several(value), strict=True):
                getattr(self, name).assign(original)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _inverse(parametrization: Any, value: RudaTensor) -> Any:
    inverse = getattr(parametrization, "right_inverse", None)
    return value if inverse is None else inverse(value)


def register_parametrization(
    module: Module,
    name: str,
    parametrization: Any,
    *,
    right_inverse: Function | None = None,
) -> Module:
    """Make ``module.name`` the value of ``parametrization``, a module or function; returns module.

    The first one gets the parameter, or what its ``right_inverse`` gives for it (several tensors:
    ``original0``, ``original1``, …); further ones get the result of those before. Raises
    ``ArgumentError`` without a tensor of that name, ``ShapeError`` if the shape would change.

    >>> layer = ruda.nn.Linear(2, 2)
    >>> _ = register_parametrization(layer, "weight", lambda w: w - w.mT)
    >>> bool(ruda.all(layer.weight == -layer.weight.mT))
    True
    """
    op = "register_parametrization"
    if not isinstance(parametrization, Module):
        if not callable(parametrization):
            raise DTypeError(op, "no function", type(parametrization).__name__)
        parametrization = _Function(parametrization, right_inverse)
    elif right_inverse is not None:
        raise ArgumentError(op, "a module brings its own right_inverse", hint="right_inverse=None")
    if is_parametrized(module, name):
        module.parametrizations[name].append(parametrization)
        return module
    value = module._parameters.get(name)
    value = module._buffers.get(name) if value is None else value
    if value is None:
        known = ", ".join([*module._parameters, *module._buffers])
        raise ArgumentError(op, "the module has no such tensor", name, known)
    made = Parametrization(value, parametrization)
    shape = made().shape
    if shape != value.shape:
        raise ShapeError(op, f"the shape of {name} would change", shape, value.shape)
    delattr(module, name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[name] = made
    return module


def is_parametrized(module: Module, name: str | None = None) -> bool:
    """Whether ``module`` has a parametrization, of ``name`` if given."""
    found = module._modules.get("parametrizations")
    return isinstance(found, ModuleDict) and (name is None or name in found)


def remove_parametrizations(module: Module, name: str, leave_parametrized: bool = True) -> Module:
    """Make ``module.name`` a parameter again: its value now, or its original.

    Raises ``ArgumentError`` if it has no parametrization, or several originals to choose from.
    """
    op = "remove_parametrizations"
    if not is_parametrized(module, name):
        raise ArgumentError(op, "no such parametrization", name)
    made = module.parametrizations[name]
    if made.count and not leave_parametrized:
        hint = "leave_parametrized=True"
        raise ArgumentError(op, "there are several originals", made.count, hint=hint)
    first = getattr(made, made._names()[0])
    value = made().detach().copy() if leave_parametrized else first
    del module.parametrizations[name]
    if not len(module.parametrizations):
        del module.parametrizations
    if is_parameter(first):
        setattr(module, name, Parameter(value, first.requires_grad))
    else:
        module.register_buffer(name, value)
    return module


class _WeightNorm(Module):
    """A magnitude times a direction of length 1."""

    def __init__(self, axis: int | None) -> None:
        super().__init__()
        self.axis = axis

    def _length(self, weight: RudaTensor) -> RudaTensor:
        if self.axis is None:
            return vector_norm(weight)
        kept = normalize_axis(self.axis, weight.ndim, "weight_norm")
        axes = tuple(i for i in range(weight.ndim) if i != kept)
        return vector_norm(weight, axis=axes, keepdims=True)

    def forward(self, magnitude: RudaTensor, direction: RudaTensor) -> RudaTensor:
        """``direction`` with the length ``magnitude``."""
        return direction * (magnitude / self._length(direction))

    def right_inverse(self, weight: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
        """The length of ``weight`` and ``weight`` itself."""
        return self._length(weight), weight


def weight_norm(module: Module, name: str = "weight", axis: int | None = 0) -> Module:
    """Train the length of ``module.name`` along ``axis`` apart from its direction.

    The parameters are ``parametrizations.weight.original0`` (length) and ``original1``
    (direction); ``axis=None`` takes one length for all. Salimans and Kingma, "Weight
    normalization" (2016).

    >>> layer = weight_norm(ruda.nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape
    (2, 1)
    """
    return register_parametrization(module, name, _WeightNorm(axis))


class _SpectralNorm(Module):
    """A weight over its largest singular value, which a power iteration follows."""

    def __init__(
        self, weight: RudaTensor, iterations: int, eps: float, axis: int, generator: Any
    ) -> None:
        super().__init__()
        if iterations < 1:
            name = "spectral_norm"
            raise ArgumentError(name, "n_power_iterations is too small", iterations, "1 or more")
        self.axis = normalize_axis(axis, weight.ndim, "spectral_norm")
        self.iterations, self.eps = iterations, eps
        if weight.ndim == 1:
            return
        with no_grad():
            matrix = self._matrix(weight.detach())
            for key, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = normal((size,), generator=generator, dtype=matrix.dtype)
                self.register_buffer(key, self._unit(drawn.to(matrix.device)))
            self._iterate(matrix, 15)

    def _unit(self, x: RudaTensor) -> RudaTensor:
        return x / maximum(vector_norm(x), self.eps)

    def _matrix(self, weight: RudaTensor) -> RudaTensor:
        rows = moveaxis(weight, self.axis, 0)
        return reshape(rows, (rows.shape[0], -1))

    def _iterate(self, matrix: RudaTensor, times: int) -> None:
        with no_grad():
            u, v = self._u, self._v
            for _ in range(times):
                u = self._unit(matmul(matrix, v))
                v = self._unit(matmul(matrix_transpose(matrix), u))
            self._u.assign(u)
            self._v.assign(v)

    def forward(self, weight: RudaTensor) -> RudaTensor:
        """``weight`` with the largest singular value 1, as far as the iterations know."""
        if weight.ndim == 1:
            return self._unit(weight)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.iterations)
        # Copies, since the next call changes the buffers that backward would read.
        u, v = self._u.copy(), self._v.copy()
        return weight / vecdot(u, matmul(matrix, v))

    def right_inverse(self, value: RudaTensor) -> RudaTensor:
        """``value``: its scale is lost."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    axis: int | None = None,
    *,
    generator: Any = None,
) -> Module:
    """Divide ``module.name`` by its largest singular value, found by power iteration.

    While training, each use of the attribute does ``n_power_iterations`` more. ``axis``, the rows
    of the matrix, is 0, or 1 for transposed convolutions. Miyato et al., "Spectral normalization
    for generative adversarial networks" (2018).

    >>> layer = spectral_norm(ruda.nn.Linear(3, 2))
    >>> round(ruda.linalg.matrix_norm(layer.eval().weight, ord=2).item(), 2)
    1.0
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, RudaTensor):
        raise ArgumentError("spectral_norm", "the module has no such tensor", name)
    if axis is None:
        axis = int(type(module).__name__.startswith("ConvTranspose"))
    made = _SpectralNorm(weight, n_power_iterations, eps, axis, generator)
    return register_parametrization(module, name, made)
