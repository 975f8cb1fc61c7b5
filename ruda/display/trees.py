"""Modules and optimizers as cards: a tree that unfolds, with shapes, counts and marks.

Both are read by what they hold, since the packages that define them stand above this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ruda.display.style import chip, facts, folded, frame, span, text
from ruda.display.words import extent, memory, number
from ruda.tensor.tensor import RudaTensor

# Rows that a tree may have; notebooks become slow long before a large model ends.
MOST_ROWS = 3000
# How many levels are unfolded at first.
OPEN_LEVELS = 2


def module_card(module: Any) -> str:
    """The HTML of a module and all below it."""
    tree = _Tree()
    inside = "".join(tree.inside(module, "", 0))
    held = _unique(_held(module, "_parameters"))
    trained = sum(p.size for p in held if p.requires_grad)
    total = sum(p.size for p in held)
    head = [span("title", type(module).__name__), span("shape", _parameters(total))]
    head += [chip(name) for name in sorted({str(p.dtype) for p in held})]
    head += [chip(name) for name in sorted({str(p.device) for p in held})]
    if trained < total:
        head.append(chip(f"{number(trained)} trained" if trained else "frozen"))
    head.append(chip("training" if module.training else "evaluating"))
    head.append(span("soft", memory(sum(p.nbytes for p in held))))
    details = module.extra_repr()
    note = f'<div class="ruda-soft ruda-code">{text(details)}</div>' if details else ""
    return frame("".join(head), note, f'<div class="ruda-tree">{inside}</div>' if inside else "")


class _Tree:
    """Rows of a module tree; remembers what was shown, to name what is shared."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.rows = 0

    def inside(self, module: Any, path: str, level: int) -> Iterator[str]:
        """Parameters, buffers and modules directly in ``module``."""
        slots = vars(module)
        for group, kind in (("_parameters", ""), ("_buffers", "buffer")):
            for name, value in slots[group].items():
                if value is not None and self._has_room():
                    yield self._tensor(name, _join(path, name), value, kind)
        for name, child in slots["_modules"].items():
            if child is not None and self._has_room():
                yield self._module(name, _join(path, name), child, level)
        if self.rows == MOST_ROWS:
            self.rows += 1
            yield f'<div class="ruda-row ruda-soft">… more than {MOST_ROWS:,} rows</div>'

    def _has_room(self) -> bool:
        if self.rows >= MOST_ROWS:
            return False
        self.rows += 1
        return True

    def _module(self, name: str, path: str, module: Any, level: int) -> str:
        line = f"{span('soft', name)} <b>{text(type(module).__name__)}</b> "
        shared = self.names.get(id(module))
        if shared is not None:
            return _row(line + chip(f"same as {shared}"))
        self.names[id(module)] = path
        held = _unique(_held(module, "_parameters"))
        if details := module.extra_repr():
            line += f'<span class="ruda-soft ruda-code">{text(details)}</span> '
        if held and not any(p.requires_grad for p in held):
            line += chip("frozen")
        count = span("count", number(sum(p.size for p in held))) if held else ""
        inside = "".join(self.inside(module, path, level + 1))
        if not inside:
            return _row(count + line)
        # A module without modules unfolds on demand: its line says what matters.
        opened = " open" if level + 1 < OPEN_LEVELS and vars(module)["_modules"] else ""
        return f"<details{opened}><summary>{count}{line}</summary><div>{inside}</div></details>"

    def _tensor(self, name: str, path: str, value: Any, kind: str) -> str:
        line = f"{span('soft', name)} {text(extent(value.shape))} {chip(value.dtype)} "
        if kind:
            line += chip(kind)
        elif not value.requires_grad:
            line += chip("frozen")
        shared = self.names.setdefault(id(value), path)
        if shared != path:
            return _row(line + chip(f"tied to {shared}"))
        return _row(span("count", number(value.size)) + line)


def optimizer_card(optimizer: Any) -> str:
    """The HTML of an optimizer: its groups, what each parameter is, and the memory of its state."""
    groups = optimizer.param_groups
    params = [p for group in groups for p in group["params"]]
    state = optimizer.state
    kept = [value for values in state.values() for value in values.values()]
    head = [
        span("title", type(optimizer).__name__),
        span("shape", _parameters(sum(p.size for p in params))),
    ]
    if len(groups) > 1:
        head.append(chip(f"{len(groups)} groups"))
    steps = [value for values in state.values() if (value := values.get("step")) is not None]
    if steps:
        head.append(chip(f"step {max(_value(step) for step in steps)}"))
    head.append(span("soft", f"{memory(sum(value.nbytes for value in kept))} of state"))
    parts = [_group(i, group, state, len(groups) > 1) for i, group in enumerate(groups)]
    return frame("".join(head), *parts)


def _group(index: int, group: Any, state: Any, named: bool) -> str:
    settings = [(name, _value(value)) for name, value in group.items() if name != "params"]
    params = group["params"]
    title = f"{len(params)} tensors, {_parameters(sum(p.size for p in params))}"
    rows = "".join(_optimized(p, state.get(p, {})) for p in params[:MOST_ROWS])
    if len(params) > MOST_ROWS:
        rows += f'<div class="ruda-row ruda-soft">… of {len(params):,}</div>'
    heading = f'<div class="ruda-more ruda-soft">group {index}</div>' if named else ""
    pairs = [(name, number(v) if isinstance(v, float) else str(v)) for name, v in settings]
    listed = folded(title, f'<div class="ruda-tree">{rows}</div>')
    return heading + facts(pairs, as_list=True) + listed


def _optimized(p: Any, state: Any) -> str:
    line = f"{text(extent(p.shape))} {chip(p.dtype)} "
    if not p.requires_grad:
        line += chip("frozen")
    elif p.grad is None:
        line += chip("no gradient")
    names = ", ".join(
        f"{name} {value.dtype}" if value.dtype is not p.dtype and value.shape else name
        for name, value in state.items()
    )
    return _row(f"{span('count', number(p.size))}{line} {span('soft', names)}")


def _row(inside: str) -> str:
    return f'<div class="ruda-row">{inside}</div>'


def _parameters(count: int) -> str:
    return f"{count:,} parameter{'s' if count != 1 else ''}"


def _value(value: Any) -> Any:
    return value.item() if isinstance(value, RudaTensor) else value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _held(module: Any, group: str) -> Iterator[Any]:
    yield from (value for value in vars(module)[group].values() if value is not None)
    for child in vars(module)["_modules"].values():
        if child is not None:
            yield from _held(child, group)


def _unique(values: Iterator[Any]) -> list[Any]:
    """The tensors in ``values``, one that comes twice once; by identity, as == is elementwise."""
    return list({id(value): value for value in values}.values())
