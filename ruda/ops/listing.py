"""The table as text: where each row is defined, one row in full, and the page of all of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ruda.core.dtypes import ALL
from ruda.ops.support import words
from ruda.ops.table import COMPOSITES, TABLE, Composite
from ruda.tensor.dispatch import Op

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


class Definition(NamedTuple):
    """Where a row stands: its module and the first and last line."""

    module: ModuleType
    first: int
    last: int

    @property
    def family(self) -> str:
        """The name of the module without its package."""
        return self.module.__name__.rpartition(".")[2]

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{_relative(self.module.__file__)}:{self.first}"

    @property
    def source(self) -> str:
        """The text of the row."""
        lines = inspect.getsource(self.module).splitlines()
        return "\n".join(lines[self.first - 1 : self.last])


def load() -> list[ModuleType]:
    """Import every family, those that load lazily included, so that the table is whole."""
    names = [found.name for found in pkgutil.iter_modules([str(FOLDER)]) if not found.ispkg]
    own = ("__main__", "listing", "rules", "table")
    return [importlib.import_module(f"ruda.ops.{name}") for name in names if name not in own]


def rows() -> dict[str, Op]:
    """The rows of ruda itself, by name: operators of the user's own are in the table as well."""
    return {name: op for name, op in TABLE.items() if op.grade != "custom"}


def definitions() -> dict[str, Definition]:
    """Where each row and composite is defined, by name."""
    modules = load()
    known = {id(op.call): name for name, op in rows().items()}
    known |= {id(op): name for name, op in rows().items()}
    known |= {id(composite.function): name for name, composite in COMPOSITES.items()}
    out: dict[str, Definition] = {}
    for value, definition in (found for module in modules for found in _statements(module)):
        name = known.get(id(value))
        if name is not None:
            out.setdefault(name, definition)
    return out


def _statements(module: ModuleType) -> Iterator[tuple[Any, Definition]]:
    """Each value that a module defines, with the statement that does."""
    for node in ast.parse(inspect.getsource(module)).body:
        first = min([node.lineno, *(d.lineno for d in _decorators(node))])
        definition = Definition(module, first, node.end_lineno or first)
        for value in _defined(module, node):
            yield value, definition


def _defined(module: ModuleType, node: ast.stmt) -> list[Any]:
    """What a statement of a module binds to names, tuples taken apart and imports left out."""
    if isinstance(node, ast.FunctionDef):
        return [getattr(module, node.name, None)]
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    values = [getattr(module, name, None) for name in names]
    return [*values, *(part for v in values if isinstance(v, tuple) for part in v)]


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef) else []


def _relative(path: Any) -> str:
    found = Path(path)
    return str(found.relative_to(ROOT) if found.is_relative_to(ROOT) else found)


def describe(name: str) -> str:
    """All that the table knows of the row or composite ``name``."""
    entry: Op | Composite = TABLE[name] if name in TABLE else COMPOSITES[name]
    found = definitions().get(name)
    kinds = dict.fromkeys((entry.grade, entry.kind))
    parts = [f"{name}: {' '.join(kinds)}. {summary(entry)}"]
    if found is not None:
        parts.append(f"{found.place}\n{found.source}")
    if isinstance(entry, Op):
        parts += [_rule("shape rule", entry.shape), _rule("dtype rule", entry.dtype)]
        parts += [_rule("reference", entry.numpy), _facts(entry)]
    parts.append(f'tests: python -m pytest tests/table -k "[{name}-"')
    return "\n\n".join(part for part in parts if part)


def summary(entry: Op | Composite) -> str:
    """The first sentence of the documentation, on one line."""
    return " ".join(inspect.cleandoc(entry.doc).partition("\n\n")[0].split())


def _rule(title: str, function: Callable[..., Any] | None) -> str:
    """The source of a rule, or just its name where it stands in the row itself or in NumPy."""
    if function is None or getattr(function, "__name__", "") == "<lambda>":
        return ""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function) or not function.__module__.startswith("ruda"):
        return f"{title}: {name}"
    lines, first = inspect.getsourcelines(function)
    place = f"{_relative(inspect.getsourcefile(function))}:{first}"
    return f"{title}: {place}\n{''.join(lines).rstrip()}"


def _facts(op: Op) -> str:
    kept = [op.args[i] for i in op.saves] + (["the output"] if op.keeps_out else [])
    kept = ["every operand"] if op.saves_all else kept
    named = "; ".join(", ".join(names) for names in op.vjp_names if names)
    facts = {
        "dtypes": accepted(op),
        "domain": f"{op.domain[0]} to {op.domain[1]}",
        "gradient": gradient(op),
        "vjps name": named or "-",
        "tape keeps": ", ".join(kept) or "nothing",
        "autocast": op.cast or "-",
        "candidates": f"cpu: {'reference' if op.numpy else 'body'}; cuda: {cuda(op)}",
    }
    return "\n".join(f"{title}: {text}" for title, text in facts.items())


def accepted(op: Op) -> str:
    """The dtypes that a row takes, per operand where they differ."""
    groups: dict[str, list[str]] = {}
    for name in op.takes:
        groups.setdefault(words(op.takes[name]), []).append(name)
    parts = [f"{', '.join(names)}: {text}" for text, names in groups.items()]
    return "; ".join(parts) or words(op.accepts or ALL)


def gradient(op: Op) -> str:
    """The arguments that a gradient flows to; ``body`` where it flows through the body."""
    if op.vjp is None:
        return "body" if op.body is not None else "—"
    if op.joint:
        return "all"
    return ", ".join(a for a, rule in zip(op.args, op.vjp, strict=True) if rule is not None)


def cuda(op: Op) -> str:
    """What a GPU would run: the row's expression, its body, or a kernel with the row's name."""
    if op.cuda is not None:
        return f"{'body' if op.body is not None else 'none'}: {op.cuda.reason}"
    return "expression" if op.expr else "body" if op.body is not None else "—"


HEAD = """\
# Operators

Written by `python -m ruda.ops --write docs/ops.md` from the table; do not edit.
`python -m ruda.ops NAME` prints one of them in full, and
`python -m pytest tests/table -k "[NAME-"` runs its tests. `ruda.supports(NAME, dtypes, device)`
answers from the same table.

{count} operators: {primitive} primitive (a rule, a reference, a gradient), {fused} fused (a body
of operators, and kernels that must agree with it), {composite} composite (a function of
operators).

*Gradient*: the arguments that one flows to. *Cast*: what `ruda.autocast` does, low (to the half
dtype) or high (to float32). *CUDA*: where kernels come from, an expression in the row or its body.
*Captured*: whether a compiled step can hold it; the shape of a dynamic operator's result depends
on values, and its documentation names the form that can be captured.
"""
COLUMNS = ("Operator", "Gives", "Grade", "Kind", "Dtypes", "Gradient", "Cast", "CUDA", "Captured")


def page() -> str:
    """The text of ``docs/ops.md``."""
    found = definitions()
    families: dict[str, list[str]] = {}
    for name, definition in found.items():
        families.setdefault(definition.family, []).append(name)
    entries: list[Op | Composite] = [*rows().values(), *COMPOSITES.values()]
    grades = [entry.grade for entry in entries]
    counts = {grade: grades.count(grade) for grade in ("primitive", "fused", "composite")}
    parts = [HEAD.format(count=len(entries), **counts)]
    for family in sorted(families):
        lines = [f"## {family}", "", _first(found[families[family][0]].module), ""]
        lines += [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)]
        lines += [_line(name) for name in sorted(families[family])]
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def _first(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").partition("\n\n")[0].split())


def _line(name: str) -> str:
    cells: tuple[str, ...]
    if name in TABLE:
        op = TABLE[name]
        call = f"`{name}({', '.join((*op.args, *op.attrs))})`"
        captured = "no" if op.kind == "dynamic" else "yes"
        cells = (call, summary(op), op.grade, op.kind, accepted(op), gradient(op))
        cells = (*cells, op.cast or "—", cuda(op), captured)
    else:
        composite = COMPOSITES[name]
        parameters = ", ".join(inspect.signature(composite.function).parameters)
        cells = (f"`{name}({parameters})`", summary(composite), "composite", "", "", "", "", "", "")
    return "| " + " | ".join(c.replace("|", "\\|").replace("``", "`") for c in cells) + " |"
