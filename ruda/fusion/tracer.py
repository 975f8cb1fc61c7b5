"""The tracer: takes the launches of a function in place of the device and builds the graph.

Recording goes on as usual, so forward, ``backward``, clipping and the optimizer become one graph.
Nothing outside of the trace is changed: assignments make new values, gradients go to an overlay,
nodes set on the user's tensors are put back.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ruda.core.mode import MODE, NODES, recording
from ruda.core.spec import Spec, weak_spec
from ruda.fusion.graph import Graph, Value
from ruda.fusion.lines import refusal
from ruda.fusion.pytree import Given
from ruda.fusion.sources import Argument, Draw, Gradient, LeafOf, Scalar
from ruda.fusion.state import Cells
from ruda.fusion.symbols import Symbol, SymbolView, TracedFloat, TracedInt
from ruda.ops.geometry import view_offset
from ruda.tensor.dispatch import OPS
from ruda.tensor.node import Leaf, Node, Output
from ruda.tensor.tensor import RudaTensor, wrap


class Tracer:
    """One trace on one client, from its first operator to its last."""

    def __init__(self, client: Any, given: Given) -> None:
        self.client = client
        # Without tensors among the arguments the first one that is met says on which device.
        self.settled = any(value.__class__ is RudaTensor for value in given.leaves)
        self.graph = Graph()
        self.cells = Cells(self, self.graph)
        self.done = False
        # How deep in bodies that stand for one operator; they are of its run of a checkpoint.
        self.inlining = 0
        # The gradient of each leaf as it was, and as the trace sees it.
        self.first_grads: dict[Leaf, Any] = {}
        self.grads: dict[Leaf, Any] = {}
        # What each leaf's gradient was when the first leaf was changed: before the optimizer.
        self.early_grads: dict[Leaf, Any] | None = None
        # Leaves that the trace has made: nobody sees what becomes of their gradients.
        self.inner: set[Leaf] = set()
        self.leaf_values: dict[int, Leaf] = {}
        self.nodes: set[Node] = set()
        self.undo: list[tuple[RudaTensor, Any]] = []
        self.met: dict[int, tuple[weakref.ref[RudaTensor], Any, Any]] = {}
        self.draws: dict[int, tuple[Any, int]] = {}
        self.seeds: dict[int, Any] = {}
        # Arguments that are compared by identity.
        self.objects: list[Any] = [value for _, value in given.objects]
        self.arguments: dict[int, int] = {}
        self.argument_leaves: dict[Leaf, int] = {}
        self.floats: dict[int, TracedFloat] = {}
        # Bases of which it matters where their views begin, by id.
        self.placed: set[int] = set()
        # Where views of a plan alone begin: the layers of a network look at the same places.
        self._offsets: dict[Any, int] = {}
        self._declare(given)

    def _declare(self, given: Given) -> None:
        for i, (value, path) in enumerate(zip(given.leaves, given.paths, strict=True)):
            if value.__class__ is RudaTensor:
                self.cells.declare(value.handle, Argument(i, path))
                self.arguments[id(value)] = i
                if value.node.__class__ is Leaf:
                    self.argument_leaves[value.node] = i
            else:
                source = self.graph.input("scalar", None, Scalar(i, path))
                self.floats[i] = TracedFloat(self, source, path)

    # What the dispatcher calls.

    def meet(self, values: Sequence[Any]) -> None:
        """Note the tensors from outside, whose handle and node are guarded."""
        for tensor in values:
            if tensor.__class__ is not RudaTensor:
                continue
            node = tensor.node
            if isinstance(tensor.handle, Symbol | SymbolView):
                if node.__class__ is Leaf and tensor.handle.real is None:
                    self.inner.add(node)
                continue
            if node.__class__ is Leaf:
                root = tensor.handle.root or tensor.handle
                self.leaf_values.setdefault(id(root), node)
            elif node is not None and id(tensor) not in self.arguments and not self._made(node):
                what = "a tensor with a history from outside of the compiled step is used"
                raise refusal("compile", what, tensor.spec, "x.detach()")
            found = self.met.get(id(tensor))
            if found is None or found[0]() is not tensor:
                self.met[id(tensor)] = (weakref.ref(tensor), tensor.handle, node)

    def emit(self, plan: Any, handles: Sequence[Any]) -> tuple[list[Any], Any]:
        """Record one operator; returns the symbols of its operands and of its outputs."""
        if plan.op.kind == "dynamic":
            hint = f"{plan.op.name} outside of the compiled step, or its form with a fixed size"
            raise refusal(plan.op.name, "the shape of the result depends on values", hint=hint)
        if not self.inlining:
            self.graph.turn = getattr(MODE.get().recorder, "turn", None)
        symbols = [self.symbol(h, s) for h, s in zip(handles, plan.specs, strict=True)]
        self._check_stays(plan.out[0] if plan.out.__class__ is tuple else plan.out)
        # What the device would run as other operators is those operators, which can be fused.
        by_body = getattr(plan.run, "by_body", False)
        if by_body and not any(isinstance(symbol, TracedInt) for symbol in symbols):
            return symbols, self._inlined(plan, symbols)
        inputs = [self.value(symbol) for symbol in symbols]
        outputs = self.graph.add(plan, inputs, shares=plan.shares)
        if plan.shares:
            return symbols, self._view(plan, symbols, outputs[0])
        results = [Symbol(self, value, value.spec) for value in outputs]
        return symbols, tuple(results) if plan.out.__class__ is tuple else results[0]

    def _check_stays(self, out: Any) -> None:
        """Raise for a result on another device: what is behind it would be of two."""
        if out is None or out.client is self.client:
            return
        if not self.settled and not self.graph.instructions:
            self.client, self.settled = out.client, True
            return
        if "cuda" in (out.client.device.kind, self.client.device.kind):
            what, hint = "a compiled step runs on one device", "one step for each device"
            got = f"a result on {out.client.device} in a step on {self.client.device}"
            raise refusal("compile", what, got, hint=hint)

    def _inlined(self, plan: Any, symbols: list[Any]) -> Any:
        """The results of the body of ``plan`` in memory of their own."""
        with recording(False):
            given = zip(plan.specs, symbols, strict=True)
            operands = [x if s.weak or x is None else wrap(s, x) for s, x in given]
            self.inlining += 1
            try:
                out = plan.op.body(*operands, *plan.attrs)
            finally:
                self.inlining -= 1
            several = plan.out.__class__ is tuple
            pairs = list(zip(out, plan.out, strict=True)) if several else [(out, plan.out)]
            found = tuple(self._settled(tensor, spec, symbols) for tensor, spec in pairs)
        return found if several else found[0]

    @staticmethod
    def _settled(tensor: RudaTensor, spec: Spec, symbols: list[Any]) -> Any:
        handle = tensor.handle
        given = any(handle is symbol for symbol in symbols)
        if tensor.spec is not spec or given or handle.__class__ is not Symbol:
            tensor = tensor.copy()
        return tensor.handle

    def _view(self, plan: Any, symbols: list[Any], value: Value) -> SymbolView:
        x, *rest = symbols
        base = x if x.__class__ is Symbol else x.base
        offset = view_offset(plan, rest) if rest else self._offsets.get(plan)
        if offset is None:
            offset = self._offsets[plan] = view_offset(plan, ())
        return SymbolView(base, x.offset + offset, plan.out, value, None)

    def recorded(self, node: Node) -> None:
        """Know ``node`` as one that was recorded inside the trace."""
        self.nodes.add(node)

    def symbol(self, handle: Any, spec: Spec) -> Any:
        """What the trace knows ``handle`` by; a Python scalar or tuple is itself."""
        if isinstance(handle, Symbol | SymbolView | TracedInt):
            if handle.tracer is not self:
                raise refusal("compile", "a tensor of an earlier trace is used", spec)
            return handle
        if spec.weak:
            return handle
        if not self.settled and not self.graph.instructions:
            self.client, self.settled = spec.client, True
        if spec.client is not self.client:
            what = "a compiled step runs on one device"
            raise refusal("compile", what, f"{spec.client.device} beside {self.client.device}")
        return self.cells.symbol(handle, spec)

    def value(self, symbol: Any) -> Value:
        """The value that ``symbol`` shows now."""
        if symbol.__class__ is Symbol:
            return symbol.history[-1]
        if symbol.__class__ is SymbolView:
            found = symbol.shown.get(symbol.version)
            if found is None:
                found = symbol.shown[symbol.version] = self._shown(symbol)
            return found
        if isinstance(symbol, TracedInt):
            return symbol.value
        return self.graph.constant(symbol)

    def _shown(self, view: SymbolView) -> Value:
        """What ``view`` shows of the present value of its base."""
        base = view.base
        if view.whole and view.spec is base.spec:
            return base.history[-1]
        self._check_dense(base)
        operands = [(base.history[-1], base.spec), (view.offset, None)]
        shown: Value = self.apply("as_strided", operands, (view.spec.shape, view.spec.strides))
        return shown

    def _check_dense(self, base: Symbol) -> None:
        if base.spec is None or not base.spec.contiguous:
            what = "a view of a strided tensor is used after an assignment"
            raise refusal("assign", what, base.spec, "contiguous() before taking views")

    def apply(self, name: str, operands: Sequence[tuple[Any, Any]], attrs: tuple[Any, ...]) -> Any:
        """Append the operator ``name`` to the graph; an operand without spec is an integer."""
        integer = weak_spec(self.client, "int")
        specs = tuple(integer if spec is None else spec for _, spec in operands)
        plan = OPS[name].lookup(specs, attrs)
        inputs = [x if isinstance(x, Value) else self.graph.constant(x) for x, _ in operands]
        return self.graph.add(plan, inputs, shares=plan.shares)[0]

    # Mutation, constants, reading.

    def assign(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Record ``value`` as the next content of what ``spec`` shows of ``handle``."""
        target = self.symbol(handle, spec)
        given = self.value(self.symbol(value, value_spec))
        if target.__class__ is Symbol:
            base, after = target, self._fitted(given, value_spec, spec)
        elif target.whole:
            base, after = target.base, self._fitted(given, value_spec, spec)
            if spec is not base.spec:
                after = self.apply("reshape", [(after, after.spec)], (base.spec.shape,))
        else:
            base = target.base
            self._check_dense(base)
            operands = [(base.history[-1], base.spec), (given, value_spec), (target.offset, None)]
            after = self.apply("assign_view", operands, (spec.shape, spec.strides))
        if id(base.real) in self.leaf_values and self.early_grads is None:
            self.early_grads = {leaf: self._grad_value(g) for leaf, g in self.grads.items()}
        base.history.append(after)

    def early_values(self) -> dict[Leaf, Value]:
        """The gradients before the first leaf was changed, or at the end if none was."""
        early = self.early_grads
        if early is None:
            early = {leaf: self._grad_value(g) for leaf, g in self.grads.items()}
        return {leaf: value for leaf, value in early.items() if value is not None}

    def _grad_value(self, grad: Any) -> Any:
        return None if grad is None else self.value(self.symbol(grad.handle, grad.spec))

    def _fitted(self, value: Value, given: Spec, spec: Spec) -> Value:
        """``value`` in the shape of ``spec``, dense."""
        if given.shape != spec.shape:
            value = self.apply("expand", [(value, given)], (spec.shape,))
            return self.apply("copy", [(value, value.spec)], ())  # type: ignore[no-any-return]
        if given.contiguous:
            return value
        return self.apply("copy", [(value, given)], ())  # type: ignore[no-any-return]

    def compared(self, root: Any) -> None:
        """Know that the places of views of ``root`` are a part of this trace."""
        self.placed.add(id(root))

    def alias(self, spec: Spec, handle: Any) -> SymbolView:
        """A symbolic view of all of ``handle``."""
        x = self.symbol(handle, spec)
        base = x if x.__class__ is Symbol else x.base
        return SymbolView(base, x.offset, spec, self.value(x), None)

    def base(self, handle: Any) -> Spec:
        """The spec of all the memory that ``handle``, the root of a view, stands for."""
        if handle.__class__ is not Symbol:
            return self.client.base(handle)  # type: ignore[no-any-return]
        return handle.spec or self.client.base(handle.real)

    def constant(self, spec: Spec, handle: Any) -> RudaTensor:
        """A tensor with the values of ``handle``, afresh in each replay."""
        return wrap(spec, Symbol(self, self.graph.constant(handle, spec), spec))

    def refuse(self, op: str, what: str) -> None:
        """Refuse what a replay would not do again."""
        raise refusal(op, f"{what} while tracing", hint="doing it outside of the compiled step")

    def read(self, spec: Spec, handle: Any, op: str) -> Any:
        """Refuse: there is no value yet."""
        hint = "ruda.where or another operator, or returning the tensor and reading it outside"
        raise refusal(op, "a value is read while tracing", spec, hint)

    # The tape.

    def get_grad(self, leaf: Leaf) -> Any:
        """The gradient of ``leaf`` as this trace sees it."""
        if leaf not in self.grads:
            grad = self.first_grads[leaf] = self.grads[leaf] = leaf.grad
            if grad is not None:
                if grad.node is not None:
                    what = "a gradient with a history from outside of the step is used"
                    raise refusal("grad", what, hint="detaching it")
                if grad.handle.root is None:
                    # A gradient inside of a larger buffer is state like any other.
                    source = Gradient(LeafOf(leaf, self.argument_leaves.get(leaf)))
                    self.cells.declare(grad.handle, source)
        return self.grads[leaf]

    def set_grad(self, leaf: Leaf, grad: Any) -> None:
        """Set the gradient of ``leaf`` in this trace only."""
        self.get_grad(leaf)
        self.grads[leaf] = grad

    def set_node(self, tensor: RudaTensor, node: Any) -> None:
        """Change a tensor's node until the trace ends."""
        self.undo.append((tensor, tensor.node))
        self.nodes.add(node)
        tensor.node, NODES.mark = node, object()

    def visiting(self, order: Sequence[Any]) -> None:
        """Refuse a backward walk over nodes from outside: a replay would not walk them."""
        for node in order:
            if not self._made(node) and node.__class__ in (Node, Output):
                what = "backward reaches operators recorded outside of the compiled step"
                raise refusal("backward", what, hint="detach(), or compiling all of the step")

    def _made(self, node: Any) -> bool:
        return (node.node if node.__class__ is Output else node) in self.nodes

    def leaf_changed(self, tensor: RudaTensor, what: str) -> None:
        """Refuse to change what a tensor from outside asks of the tape."""
        if isinstance(tensor.handle, Symbol | SymbolView):
            node = tensor.node
            if what != "hooks" or node.__class__ is not Leaf or not self.is_outside(node):
                return
        hint = "doing it once, before the compiled step"
        raise refusal(what, "a tensor from outside is changed while tracing", tensor.spec, hint)

    def is_outside(self, leaf: Leaf) -> bool:
        """Whether ``leaf`` was there before the trace."""
        return leaf in self.argument_leaves or any(node is leaf for _, _, node in self.met.values())

    # Random numbers and attributes.

    def draw(self, generator: Any) -> TracedInt:
        """The next draw number of ``generator``."""
        _, count = self.draws.get(id(generator), (generator, 0))
        self.draws[id(generator)] = (generator, count + 1)
        return self._number(Draw(generator, count))

    def seed(self, generator: Any) -> TracedInt:
        """The seed of ``generator``."""
        self.seeds[id(generator)] = generator
        return self._number(Draw(generator, None))

    def _number(self, source: Draw) -> TracedInt:
        return TracedInt(self, self.graph.input("scalar", None, source), source.name)

    def state_changed(self, owner: object, name: str, value: object) -> None:
        """Refuse: a replay would not set the attribute."""
        what = f"{type(owner).__name__}.{name} is set while tracing"
        hint = "setting it outside of the compiled step"
        if value.__class__ is RudaTensor:
            hint = f"self.{name}.assign(value) on a tensor made beforehand"
        raise refusal("compile", what, hint=hint)

    def check_history(self) -> None:
        """Refuse to leave a tensor from outside with a history of this trace."""
        for tensor, _ in self.undo:
            if isinstance(tensor.handle, Symbol | SymbolView) or not self._made(tensor.node):
                continue
            what = "a tensor from outside would keep the history of what is assigned to it"
            raise refusal("assign", what, tensor.spec, "detach() of the value, or no_grad()")

    def put_back(self) -> None:
        """Give the user's tensors their nodes again, and refuse further use of the symbols."""
        for tensor, node in reversed(self.undo):
            tensor.node, NODES.mark = node, object()
        self.done = True
