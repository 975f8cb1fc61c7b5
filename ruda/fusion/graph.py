"""The graph of a trace: values, and the operators that make them, in the order they ran.

A value is assigned once. What looks like a change in place is a new value; the trace knows which
value a tensor shows at which time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ruda.core.spec import Spec
from ruda.fusion.lines import Line, user_line


class Value:
    """One value of the graph.

    ``kind``: "result" of an instruction, "constant", or where a replay fetches it from ("argument",
    "state", "gradient", "scalar"). ``memory``: the value whose memory this one shows, itself unless
    it is a view. ``payload``: a constant, or the source that fetches the value.
    """

    __slots__ = ("kind", "memory", "name", "payload", "spec")

    def __init__(
        self, kind: str, spec: Spec | None, payload: Any = None, memory: Value | None = None
    ) -> None:
        self.kind = kind
        self.spec = spec
        self.payload = payload
        self.memory: Value = self if memory is None else memory
        self.name = ""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; none for a Python scalar."""
        return 0 if self.spec is None else self.spec.nbytes

    @property
    def moved(self) -> int:
        """Bytes to read or write it once: what is repeated along an axis is there once."""
        if self.spec is None:
            return 0
        size = self.spec.dtype.itemsize
        for length, stride in zip(self.spec.shape, self.spec.strides, strict=True):
            size *= length if stride else 1
        return size

    @property
    def borrowed(self) -> bool:
        """Whether the memory belongs to somebody outside of the graph."""
        return self.memory.kind != "result"


class Instruction:
    """One operator: ``run`` on the inputs gives the output, or a tuple of outputs."""

    __slots__ = ("inputs", "line", "op", "outputs", "plan", "run", "turn")

    def __init__(
        self,
        op: str,
        run: Callable[..., Any],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        line: Line | None = None,
    ) -> None:
        self.op = op
        self.run = run
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.plan: Any = None
        self.line: Line = user_line() if line is None else line
        # Which second run of a checkpoint it is of; None for what runs once.
        self.turn: Any = None

    @property
    def several(self) -> bool:
        """Whether ``run`` gives a tuple."""
        return self.plan is not None and self.plan.out.__class__ is tuple

    def but(
        self,
        plan: Any = None,
        *,
        run: Callable[..., Any] | None = None,
        inputs: Sequence[Value] | None = None,
        outputs: Sequence[Value] | None = None,
    ) -> Instruction:
        """A copy with what is given replaced; a ``plan`` brings its own ``run``."""
        known = self if plan is None else plan
        made = Instruction(
            self.op if plan is None else plan.op.name,
            known.run if run is None else run,
            self.inputs if inputs is None else inputs,
            self.outputs if outputs is None else outputs,
            self.line,
        )
        made.plan, made.turn = self.plan if plan is None else plan, self.turn
        return made

    def follow(self, instead: dict[Value, Value]) -> None:
        """Read the values that ``instead`` has for operands."""
        self.inputs = tuple(instead.get(v, v) for v in self.inputs)
        for value in self.outputs:
            # Of a view, whose memory may be that of a result that is another's now.
            found = instead.get(value.memory)
            value.memory = value.memory if found is None else found.memory


class Graph:
    """Instructions in order, over values that come from outside, from constants, or from them."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.instructions: list[Instruction] = []
        # What is computed again where it is read, for people.
        self.notes: list[str] = []
        # That of the instructions that are added now.
        self.turn: Any = None

    def input(self, kind: str, spec: Spec | None, source: Any) -> Value:
        """A value that each replay fetches from ``source``."""
        value = Value(kind, spec, source)
        self.inputs.append(value)
        return value

    def constant(self, payload: Any, spec: Spec | None = None) -> Value:
        """A value that is the same in each replay: a handle, a Python scalar, a tuple."""
        return Value("constant", spec, payload)

    def add(self, plan: Any, inputs: Sequence[Value], *, shares: bool = False) -> list[Value]:
        """Append an operator; ``shares`` says that its output shows the first input's memory."""
        specs = plan.out if plan.out.__class__ is tuple else (plan.out,)
        memory = inputs[0].memory if shares else None
        outputs = [Value("result", spec, memory=memory) for spec in specs]
        instruction = Instruction(plan.op.name, plan.run, inputs, outputs)
        instruction.plan, instruction.turn = plan, self.turn
        self.instructions.append(instruction)
        return outputs

    def scalar(self, name: str, function: Callable[..., Any], inputs: Sequence[Value]) -> Value:
        """Append a calculation with Python scalars."""
        out = Value("result", None)
        self.instructions.append(Instruction(name, function, inputs, (out,)))
        return out

    def makers(self) -> dict[Value, Instruction]:
        """The instruction that makes each value."""
        return {value: i for i in self.instructions for value in i.outputs}

    def prune(self, wanted: Iterable[Value]) -> None:
        """Drop the instructions that none of ``wanted`` needs."""
        needed = set(wanted)
        kept = []
        for instruction in reversed(self.instructions):
            if not needed.isdisjoint(instruction.outputs):
                needed.update(instruction.inputs)
                kept.append(instruction)
        self.instructions = kept[::-1]
        self.inputs = [value for value in self.inputs if value in needed]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """One line per input and per instruction, with the user's line on the right."""
        self._number()
        out = [f"{v.name} = {v.payload} : {v.spec or 'scalar'}" for v in self.inputs]
        for instruction in self.instructions:
            names = ", ".join(v.name for v in instruction.outputs)
            args = [_text(v) for v in instruction.inputs]
            attrs = [str(a) for a in instruction.plan.attrs] if instruction.plan else []
            specs = ", ".join(str(v.spec or "scalar") for v in instruction.outputs)
            call = f"{names} = {instruction.op}({', '.join([*args, *attrs])}) : {specs}"
            out.append(f"{call:<72}  # {instruction.line}")
        return out

    def _number(self) -> None:
        made = [v for instruction in self.instructions for v in instruction.outputs]
        for i, value in enumerate([*self.inputs, *made]):
            value.name = f"%{i}"


def _text(value: Value) -> str:
    if value.kind != "constant":
        return value.name
    return f"constant {value.spec}" if value.spec is not None else repr(value.payload)
