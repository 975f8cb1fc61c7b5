"""Writes what type checkers and editors cannot see: methods attached at import, and lazy names.

``python -m ruda.stubs --write`` writes ``ruda/tensor/attached.pyi`` (a base class of the tensor
that exists for type checkers alone) and ``ruda/__init__.pyi``; ``--check`` fails where one of them
is stale.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib.util
import inspect
import math
import sys
import typing
from collections import abc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ruda
from ruda.tensor.dispatch import OPS, Op
from ruda.tensor.tensor import RudaTensor

FOLDER = Path(__file__).parent
NOTE = "Written by `python -m ruda.stubs --write`."
ROWS = {id(op.call): op for op in OPS.values()}


def attached() -> dict[str, Any]:
    """What was put on the tensor class after its body ran, by name."""
    return {
        name: value
        for name, value in sorted(vars(RudaTensor).items())
        if _home(value) is not None and not _home(value).startswith("RudaTensor.")
    }


def _home(value: Any) -> Any:
    function = value.fget if isinstance(value, property) else value
    return getattr(function, "__qualname__", None) if callable(function) else None


def method_stub() -> str:
    """The text of ``ruda/tensor/attached.pyi``."""
    imports: dict[str, set[str]] = {"typing": {"Any"}, "ruda.tensor.tensor": {"RudaTensor"}}
    body = [line for name, value in attached().items() for line in _method(name, value, imports)]
    lines = [f"from {module} import {', '.join(sorted(imports[module]))}" for module in imports]
    head = f'"""Operators as methods of the tensor, for type checkers alone.\n\n{NOTE}\n"""'
    return "\n".join([head, "", *sorted(lines), "", "class Attached:", *body, ""])


def _method(name: str, value: Any, imports: dict[str, set[str]]) -> Iterator[str]:
    if isinstance(value, property):
        yield "    @property"
        yield f"    def {name}(self) -> RudaTensor: ..."
        return
    override = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    parameters, result = _signature(name, value, imports)
    yield f"    def {name}({', '.join(parameters)}) -> {result}: ...{override}"


def _signature(
    name: str, function: Callable[..., Any], imports: dict[str, set[str]]
) -> tuple[list[str], str]:
    """Parameters and result of a method whose first parameter is the tensor."""
    row = ROWS.get(id(function))
    if row is not None and not name.startswith("__"):
        return _row_parameters(row), "tuple[RudaTensor, ...]" if row.outs else "RudaTensor"
    signature = inspect.signature(function)
    known = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = list(signature.parameters.values())[1:]
    if name.startswith("__"):
        kept = [p for p in parameters if p.name != "out"]
        return ["self", *(f"{p.name}: Any" for p in kept), *(["/"] if kept else [])], (
            "None" if name == "__setitem__" else "RudaTensor"
        )
    result = _annotation(signature.return_annotation, known, imports)
    return _rendered(parameters, known, imports), "RudaTensor" if result == "Any" else result


def _row_parameters(row: Op) -> list[str]:
    names = [*row.args[1:], *row.attrs]
    return ["self", *(f"{n}: Any" for n in names), "/", "out: RudaTensor | None = None"]


def _rendered(
    parameters: list[inspect.Parameter], known: dict[str, Any], imports: dict[str, set[str]]
) -> list[str]:
    out, starred, positional_only = ["self"], False, True
    for p in parameters:
        if positional_only and p.kind is not p.POSITIONAL_ONLY:
            positional_only = False
            out += ["/"] if len(out) > 1 else []
        if p.kind is p.KEYWORD_ONLY and not starred:
            out.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        default = "" if p.default is p.empty else f" = {_default(p.default)}"
        out.append(f"{stars}{p.name}: {_annotation(p.annotation, known, imports)}{default}")
    return [*out, "/"] if positional_only and parameters else out


def _default(value: Any) -> str:
    plain = value is None or isinstance(value, bool | int | str)
    finite = isinstance(value, float) and math.isfinite(value)
    return repr(value) if plain or finite else "..."


def _annotation(text: Any, known: dict[str, Any], imports: dict[str, set[str]]) -> str:
    """``text`` if every name in it can be imported by the stub, else ``Any``."""
    if not isinstance(text, str):
        return "Any"
    needed: dict[str, str] = {}
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            needed[node.id] = _origin(node.id, known.get(node.id))
    if "" in needed.values():
        return "Any"
    for name, module in needed.items():
        imports.setdefault(module, set()).add(name)
    return text


def _origin(name: str, value: Any) -> str:
    """The module that a stub imports ``name`` from, empty when there is none to be sure of."""
    if hasattr(typing, name):
        return "collections.abc" if hasattr(abc, name) else "typing"
    return value.__module__ if isinstance(value, type) and value.__name__ == name else ""


def face_stub() -> str:
    """The text of ``ruda/__init__.pyi``: all public names, those that load lazily included."""
    tree = ast.parse((FOLDER / "__init__.py").read_text("utf-8"))
    lines, names = [], []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ruda"):
            public = [a for a in node.names if _is_public(a.asname or a.name)]
            names += [a.asname or a.name for a in public]
            if public:
                lines.append(f"from {node.module} import {', '.join(map(_alias, public))}")
    # The stub of ruda itself does not name what is private.
    hidden = vars(ruda)
    for module in _present(hidden["_LAZY_MODULES"]):
        names.append(module)
        lines.append(f"from ruda import {module}")
    for name, module in sorted(hidden["_LAZY_NAMES"].items()):
        names.append(name)
        lines.append(f"from {module} import {name}")
    lines.append("from ruda.ops.conversion import tensor")
    assigned = [n for n in _assigned(tree) if n not in names]
    lines += ["", *(_value(name) for name in assigned)]
    names = sorted({*names, *assigned, "tensor"})
    head = f'"""The public names of ruda, for type checkers alone.\n\n{NOTE}\n"""'
    listed = ["__all__ = [", *(f'    "{name}",' for name in names), "]"]
    return "\n".join([head, "", *lines, "", *listed, ""])


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__version__" or name.startswith("__array_")


def _alias(alias: ast.alias) -> str:
    return alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"


def _present(modules: tuple[str, ...]) -> list[str]:
    return [name for name in sorted(modules) if importlib.util.find_spec(f"ruda.{name}")]


def _assigned(tree: ast.Module) -> list[str]:
    """Names of values: assigned in the file, or imported from the mathematical constants."""
    nodes = [node for node in tree.body if isinstance(node, ast.Assign)]
    names = [t.id for node in nodes for t in node.targets if isinstance(t, ast.Name)]
    maths = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "math"]
    names += [alias.name for node in maths for alias in node.names]
    return [name for name in names if _is_public(name)]


def _value(name: str) -> str:
    value = getattr(ruda, name)
    if value is RudaTensor:
        return f"{name} = RudaTensor"
    return f"{name}: None" if value is None else f"{name}: {type(value).__name__}"


STUBS = {FOLDER / "tensor" / "attached.pyi": method_stub, FOLDER / "__init__.pyi": face_stub}


def main(arguments: list[str]) -> int:
    """Write or check the stubs; 1 when one of them is stale."""
    parser = argparse.ArgumentParser(prog="python -m ruda.stubs", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write the stubs")
    choice.add_argument("--check", action="store_true", help="fail where a stub is stale")
    writes, stale = parser.parse_args(arguments).write, 0
    for path, make in STUBS.items():
        text = make()
        if writes:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            print(f"{path.relative_to(FOLDER.parent)} is stale: python -m ruda.stubs --write")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
