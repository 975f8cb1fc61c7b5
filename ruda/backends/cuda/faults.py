"""Indices out of range and values out of their domain on a device: recorded there, raised at the
next synchronisation.

A kernel clamps a bad index and the first thread that meets one tells the host which site it was
queued at, the value and where it stood. A site is a line of the user's code for one plan, interned:
finding its number costs a walk over ruda's own frames and one lookup. In a compiled step it is the
line that was traced, and the error says in which replay (``runs.py``).
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from ruda.backends.cuda.runs import Runs, Waits
from ruda.core.errors import ArgumentError, IndexRangeError, RudaError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec

_RUDA = str(Path(__file__).parents[2]) + "/"
# How many sites are remembered; an older one makes room, and its number is not used again.
_REMEMBERED = 1 << 16


class _Own(dict[str, bool]):
    """Whether a file is one of ruda's own, by its name."""

    def __missing__(self, name: str) -> bool:
        own = self[name] = name.startswith(_RUDA)
        return own


_own = _Own()


# An instruction, as the id of its code and an offset, or a step, as the id of what counts its runs,
# and a line that was traced.
Place = tuple[int, int | str]


class Form:
    """What the host knows of the indices of one plan.

    ``axes`` and ``lengths`` are those that each index tensor selects from; ``wraps`` says whether a
    negative index counts from the end.
    """

    __slots__ = ("axes", "index", "lengths", "numbers", "op", "wraps")

    def __init__(self, op: str, index: Spec, axes: Shape, lengths: Shape, wraps: bool) -> None:
        self.op, self.index, self.wraps = op, index, wraps
        self.axes, self.lengths = axes, lengths
        self.numbers: dict[Place, int] = {}

    def error(self, value: int, offset: int, which: int) -> IndexRangeError:
        """The error for ``value``, which stands ``offset`` elements into the index's memory."""
        size, axis = self.lengths[which], self.axes[which]
        place = coordinates(self.index, offset)[len(self.axes) > 1 :]
        got = f"{self.valued(value)} at {place} for axis {axis} of size {size}"
        expected = f"{-size if self.wraps else 0} to {size - 1}"
        return IndexRangeError(self.op, "index out of range", got, expected)

    def valued(self, value: int) -> int:
        """``value`` as the dtype of the indices means it."""
        return value & 0xFFFFFFFFFFFFFFFF if self.index.dtype.kind == "uint" else value


class Domain:
    """What the host knows of values that must lie in a domain: the parameters of one plan.

    ``rules`` says by the number of a fault what is wrong, what was got, with ``{value}`` and
    ``{place}``, and what was expected. A value is told as the bits of a float64, or, with
    ``counts``, as an integer.
    """

    __slots__ = ("counts", "numbers", "op", "rules", "spec")

    def __init__(
        self, op: str, spec: Spec, *rules: tuple[str, str, str], counts: tuple[int, ...] = ()
    ) -> None:
        self.op, self.spec, self.rules, self.counts = op, spec, rules, counts
        self.numbers: dict[Place, int] = {}

    def error(self, value: int, offset: int, which: int) -> ArgumentError:
        """The error for ``value``, which stands ``offset`` elements into the parameter."""
        what, got, expected = self.rules[which]
        (real,) = struct.unpack("<d", struct.pack("<q", value))
        place = coordinates(self.spec, offset)
        shown = got.format(value=value if which in self.counts else real, place=place)
        return ArgumentError(self.op, what, shown, expected)


def coordinates(spec: Spec, offset: int) -> Shape:
    """The place of the element that lies ``offset`` from the first one; 0 on repeated axes."""
    offset -= sum(min(s * (n - 1), 0) for n, s in zip(spec.shape, spec.strides, strict=True))
    out = [0] * spec.ndim
    for axis in sorted(range(spec.ndim), key=lambda a: -abs(spec.strides[a])):
        stride, size = spec.strides[axis], spec.shape[axis]
        if stride and size > 1:
            steps = min(offset // abs(stride), size - 1)
            offset -= steps * abs(stride)
            out[axis] = steps if stride > 0 else size - 1 - steps
    return tuple(out)


class Site:
    """A place in a user's code that queued an operator, and what the host knows of it.

    ``at`` is a code object and the offset of an instruction, or ``file:line`` of a compiled step,
    whose ``runs`` are counted.
    """

    __slots__ = ("at", "form", "name", "number", "runs")

    def __init__(
        self,
        number: int,
        form: Form | Domain,
        at: tuple[CodeType, int] | str,
        name: str | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.number, self.form, self.at, self.name, self.runs = number, form, at, name, runs

    @property
    def line(self) -> str:
        """``file:line`` of the place."""
        if isinstance(self.at, str):
            return self.at
        code, instruction = self.at
        for start, stop, line in code.co_lines():
            if line is not None and start <= instruction < stop:
                return f"{code.co_filename}:{line}"
        return f"{code.co_filename}:{code.co_firstlineno}"

    def error(self, value: int, offset: int, which: int) -> RudaError:
        """The error in the name of the function that was called, with the line that called it."""
        error: RudaError = self.form.error(value, offset, which)
        if self.name is not None:
            error = error.renamed(self.name)
        error.what += f", queued at {self.line}"
        if self.runs is not None:
            error.what += f" {self.runs}"
        error.args = (error.op, error.what, *error.args[2:])
        return error


_sites: dict[int, Site] = {}
_last = 0
_turn = threading.Lock()


class _Traced(threading.local):
    line: Any = None
    runs: Runs | None = None


_traced = _Traced()


def traced(line: Any, runs: Runs | None, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` of an operator of a compiled step, whose faults name the ``line`` that was traced."""

    def call(*handles: Any) -> Any:
        before = _traced.line, _traced.runs
        _traced.line, _traced.runs = line, runs
        try:
            return run(*handles)
        finally:
            _traced.line, _traced.runs = before

    return call


def site_of(form: Form | Domain) -> int:
    """The number of the place that queues an operator, as a site of ``form``.

    That is the line that was traced, or else the innermost frame outside of ruda.
    """
    if _traced.line is not None:
        place, runs = _traced.line.of(form.op), _traced.runs
        number = form.numbers.get((id(runs), place))
        if number is not None and number > _last - _REMEMBERED:
            return number
        if runs is not None:
            runs.tell()
        return _intern(form, (id(runs), place), place, None, runs)
    frame: Any = sys._getframe(1)
    while _own[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    key = (id(frame.f_code), frame.f_lasti)
    number = form.numbers.get(key)
    # A remembered site keeps its code or what counts its runs alive, so nothing else has its id.
    if number is not None and number > _last - _REMEMBERED:
        return number
    return _intern(form, key, (frame.f_code, frame.f_lasti), _function(frame))


def _intern(
    form: Form | Domain,
    key: Place,
    at: tuple[CodeType, int] | str,
    name: str | None,
    runs: Runs | None = None,
) -> int:
    global _last
    with _turn:
        # Two threads that count at once would share a number, and one have the other's line.
        number = _last = _last + 1
        _sites[number % _REMEMBERED] = Site(number, form, at, name, runs)
    form.numbers[key] = number
    return number


def _function(outside: Any) -> str | None:
    """The function of ``ops/gather.py`` that ``outside`` called, which lends errors its name."""
    frame, name = sys._getframe(2), None
    while frame is not outside and frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("/ops/gather.py") and not code.co_name.startswith("_"):
            name = code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return name


class Faults:
    """The record of one device: what its index kernels are told, and what the host reads of it."""

    def __init__(self, client: Any) -> None:
        self._driver, self._now, self._checks = client.driver, client.now, client.checks
        self.waits = Waits()
        # Of GPUs from which something was copied to this one: what is read here may be of theirs.
        self._before: set[Faults] = set()
        self._words: Any = None
        self._turn = threading.Lock()
        self._record = self._claimed = 0

    def parameters(self, form: Form | Domain) -> tuple[int, int, int]:
        """The slots of a kernel's ``Faults``: for one launch by the calling line."""
        if self._words is None:
            with self._turn:
                if self._words is None:
                    self._make()
        return self._record, self._claimed, site_of(form)

    def _make(self) -> None:
        host, self._record = self._driver.allocate_host(32)
        words = (ctypes.c_uint64 * 4).from_address(host)
        words[:] = [0, 0, 0, 0]
        self._claimed = self._driver.allocate(512)
        # In a stream of its own: that of the caller may be captured, and then nothing runs there.
        apart = self._driver.new_stream()
        self._driver.fill(self._claimed, 0, 4, int(apart.ptr))
        self._driver.wait(int(apart.ptr))
        self._words = words
        self._checks.append(self.check)

    def follow(self, other: Faults) -> None:
        """What happened up to now on the device of ``other`` may show here."""
        found = {other, *other._before} - {self} - self._before
        if found and not self._before:
            self._checks.append(self._check_before)
        self._before |= found

    def _check_before(self) -> None:
        for other in list(self._before):
            other.check()

    def check(self) -> None:
        """Raise what was recorded and forget it; call it once the device's work is done."""
        words = self._words
        if words is None or not words[0]:
            return
        with self._turn:
            # Another thread may have found it meanwhile: one of them raises.
            found = tuple(words)
            if not found[0]:
                return
            words[:] = [0, 0, 0, 0]
            self._driver.fill(self._claimed, 0, 4, self._now.stream)
        self._raise(*found)

    def _raise(self, number: int, value: int, offset: int, which: int) -> None:
        value, offset = (v - (1 << 64) if v >> 63 else v for v in (value, offset))
        found = _sites.get(number % _REMEMBERED)
        if found is None or found.number != number:
            what = "index out of range, queued at a line no longer remembered"
            raise IndexRangeError("index", what, value)
        raise found.error(value, offset, which)
