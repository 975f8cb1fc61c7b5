"""The project's own source files, and the imports that stand in them, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


def source_files(*folders: str, suffix: str = ".py") -> list[Path]:
    """Files below the named folders of the project, as paths relative to its root."""
    found = [path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}")]
    return sorted(path.relative_to(ROOT) for path in found)


def module_name(path: Path) -> str:
    """`ruda/core/spec.py` is `ruda.core.spec`; a package's `__init__.py` is the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Import(NamedTuple):
    """One imported name. `scope` is the enclosing function, dotted, or empty at module level."""

    module: str
    name: str
    line: int
    scope: str
    typing_only: bool


def imports(path: Path, source: str) -> list[Import]:
    """Every import of a file: statements, and calls of `import_module` and `__import__`."""
    return list(_walk(ast.parse(source).body, path, (), False))


def _walk(
    nodes: Iterable[ast.AST], path: Path, scope: tuple[str, ...], typing_only: bool
) -> Iterator[Import]:
    for node in nodes:
        where = (getattr(node, "lineno", 0), ".".join(scope), typing_only)
        inner = scope
        match node:
            case ast.Import():
                yield from (Import(alias.name, "", *where) for alias in node.names)
            case ast.ImportFrom():
                origin = _origin(path, node)
                yield from (Import(origin, alias.name, *where) for alias in node.names)
            case ast.Call() if _called(node) in ("import_module", "__import__"):
                yield Import(_literal(node), "", *where)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                inner = (*scope, node.name)
            case ast.If() if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                yield from _walk(node.body, path, scope, True)
                yield from _walk(node.orelse, path, scope, False)
                continue
        yield from _walk(ast.iter_child_nodes(node), path, inner, typing_only)


def _origin(path: Path, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = path.parent.parts[: len(path.parent.parts) - node.level + 1]
    return ".".join((*package, node.module) if node.module else package)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _literal(node: ast.Call) -> str:
    """The imported module where it is written out, else a word that no rule allows by name."""
    match node.args:
        case [ast.Constant(value=str(name)), *_]:
            return name
    return "<computed>"
