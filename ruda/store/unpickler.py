"""A machine for the part of the pickle format that weights are written in.

Python's own unpickler runs whatever a file names, and its C form reserves gigabytes for a memo
index that twenty bytes can name. This one knows plain values, containers and the few functions that
it is given, which it calls by itself: nothing from a file is ever imported.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from ruda.core.errors import StoreError
from ruda.store.errors import shown

_MAX_PROTOCOL = 5
_HINT = "saving a state_dict of tensors alone, or as .safetensors where the file was made"

# Opcodes that push a number stored behind them: its struct format.
_NUMBERS = {pickle.BININT: "<i", pickle.BININT1: "<B", pickle.BININT2: "<H", pickle.BINFLOAT: ">d"}
_CONSTANTS = {pickle.NONE: None, pickle.NEWTRUE: True, pickle.NEWFALSE: False}
_EMPTY: dict[bytes, Callable[[], Any]] = {
    pickle.EMPTY_DICT: dict,
    pickle.EMPTY_LIST: list,
    pickle.EMPTY_TUPLE: tuple,
}
_TUPLES = {pickle.TUPLE1: 1, pickle.TUPLE2: 2, pickle.TUPLE3: 3}
# The format of the length, of the index.
_STRINGS = {pickle.BINUNICODE: "<I", pickle.SHORT_BINUNICODE: "<B"}
_MEMO_WRITES = {pickle.BINPUT: "<B", pickle.LONG_BINPUT: "<I"}
_MEMO_READS = {pickle.BINGET: "<B", pickle.LONG_BINGET: "<I"}
# A tuple as a key is hashed part by part: one that holds itself twice, forty levels deep, never
# ends.
_KEYS = (str, int, float, bool, type(None))


class Function:
    """Something a file may call by name: ``call`` gets the arguments and checks them itself."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class Mark:
    """Something a file may name but not call, such as a dtype."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def unpickled(
    raw: bytes, names: Mapping[str, Function | Mark], persistent: Callable[[Any], Any], path: str
) -> Any:
    """Return the object that a pickle holds, built of plain values and what ``names`` has.

    ``persistent`` makes an object of a persistent id. Raises ``StoreError`` for every other name or
    opcode and for a pickle that is not whole and well formed.
    """
    machine = _Machine(raw, names, persistent, path)
    steps = machine.steps()
    while (code := machine.take(1)) != pickle.STOP:
        step = steps.get(code)
        if step is None:
            got = f"opcode {code!r} at byte {machine.at - 1}"
            machine.fail("the pickle does what weights do not", got, "plain weights")
        step()
    return machine.result()


class _Machine:
    """Stack, marks and memo. A mark is a place in the stack that nothing below is popped past."""

    def __init__(
        self,
        raw: bytes,
        names: Mapping[str, Function | Mark],
        persistent: Callable[[Any], Any],
        path: str,
    ) -> None:
        self.raw, self.at, self.path = raw, 0, path
        self.names, self.persistent = names, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def fail(self, what: str, got: str, expected: str, hint: str = _HINT) -> NoReturn:
        raise StoreError("load", what, got, expected, hint, self.path)

    def malformed(self, expected: str) -> NoReturn:
        self.fail("the pickle is malformed", f"something else before byte {self.at}", expected)

    def take(self, count: int) -> bytes:
        found = self.raw[self.at : self.at + count]
        self.at += count
        if len(found) != count:
            self.malformed("a whole pickle")
        return found

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        stop = self.raw.find(b"\n", self.at, self.at + 300)
        if stop < 0:
            self.malformed("a name and a line end")
        text = self.raw[self.at : stop].decode("latin-1")
        self.at = stop + 1
        return text

    def floor(self) -> int:
        return self.marks[-1] if self.marks else 0

    def pop(self) -> Any:
        if len(self.stack) <= self.floor():
            self.malformed("a value on the stack")
        return self.stack.pop()

    def top(self) -> Any:
        if len(self.stack) <= self.floor():
            self.malformed("a value on the stack")
        return self.stack[-1]

    def popped(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def popped_to_mark(self) -> list[Any]:
        if not self.marks:
            self.malformed("a mark")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def result(self) -> Any:
        if self.marks or len(self.stack) != 1 or self.at != len(self.raw):
            self.malformed("one value and nothing after it")
        return self.stack[0]

    def steps(self) -> dict[bytes, Callable[[], object]]:
        """What each opcode does."""
        push = self.stack.append
        steps: dict[bytes, Callable[[], object]] = {
            pickle.PROTO: self.protocol,
            pickle.FRAME: lambda: self.number("<Q"),
            pickle.MARK: lambda: self.marks.append(len(self.stack)),
            pickle.MEMOIZE: lambda: self.remember(len(self.memo)),
            pickle.TUPLE: lambda: push(tuple(self.popped_to_mark())),
            pickle.APPEND: lambda: self.extend(self.popped(1)),
            pickle.APPENDS: lambda: self.extend(self.popped_to_mark()),
            pickle.SETITEM: lambda: self.update(self.popped(2)),
            pickle.SETITEMS: lambda: self.update(self.popped_to_mark()),
            pickle.GLOBAL: lambda: self.named(self.line(), self.line()),
            pickle.STACK_GLOBAL: lambda: self.named(*self.popped(2)),
            pickle.BINPERSID: lambda: push(self.persistent(self.pop())),
            pickle.REDUCE: self.call,
            pickle.BUILD: self.build,
            pickle.LONG1: lambda: push(int.from_bytes(self.block("<B"), "little", signed=True)),
        }
        parametrised: list[tuple[Mapping[bytes, Any], Callable[[Any], object]]] = [
            (_CONSTANTS, push),
            (_NUMBERS, lambda layout: push(self.number(layout))),
            (_EMPTY, lambda make: push(make())),
            (_TUPLES, lambda count: push(tuple(self.popped(count)))),
            (_STRINGS, lambda layout: push(self.text(layout))),
            (_MEMO_WRITES, lambda layout: self.remember(self.number(layout))),
            (_MEMO_READS, lambda layout: self.recall(self.number(layout))),
        ]
        for codes, step in parametrised:
            steps |= {code: partial(step, argument) for code, argument in codes.items()}
        return steps

    def protocol(self) -> None:
        version = self.number("<B")
        if version > _MAX_PROTOCOL:
            self.fail("unknown pickle protocol", str(version), f"at most {_MAX_PROTOCOL}")

    def block(self, layout: str) -> bytes:
        return self.take(self.number(layout))

    def text(self, layout: str) -> str:
        try:
            return self.block(layout).decode()
        except UnicodeDecodeError:
            self.malformed("a string in UTF-8")

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            self.malformed("a value in the memo")
        self.stack.append(self.memo[index])

    def extend(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            self.malformed("a list to append to")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(items) % 2:
            self.malformed("a mapping, and pairs to put into it")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in _KEYS:
                got = type(key).__name__
                self.fail("unsupported key of a mapping", got, "a string or number")
            target[key] = value

    def named(self, module: Any, name: Any) -> None:
        full = f"{module}.{name}" if type(module) is type(name) is str else "no string"
        if full not in self.names:
            expected = "tensors, storages and containers alone"
            self.fail("the file names something that weights do not need", shown(full), expected)
        self.stack.append(self.names[full])

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Function) or type(arguments) is not tuple:
            self.malformed("a function and its arguments")
        self.stack.append(function.call(*arguments))

    def build(self) -> None:
        """Drop attributes of a mapping: PyTorch keeps version numbers of modules there."""
        self.pop()
        if type(self.top()) is not dict:
            self.fail("attributes of an object are set", type(self.top()).__name__, "a mapping")
