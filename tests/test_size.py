"""The limits on the size of files and functions, so that any file is read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.sources import ROOT, source_files

FOLDERS = ("ruda", "tests", "examples", "benchmarks", "docs")
FILE_LINES = {".py": 600, ".cu": 800, ".cuh": 800}
FUNCTION_LINES = 40
NESTING = 3
NESTS = ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Match


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the last line of the body."""
    body = function.body
    if ast.get_docstring(function) is not None and len(body) > 1:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def long_functions(path: Path, source: str) -> list[str]:
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [
        f"{path}:{node.lineno}: {node.name} has {body_lines(node)} lines"
        for node in functions
        if body_lines(node) > FUNCTION_LINES
    ]


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How deep the blocks of ``node`` go; functions inside count by themselves, elif not at all."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        goes_on = isinstance(node, ast.If) and isinstance(child, ast.If) and [child] == node.orelse
        inner = depth + (isinstance(child, NESTS) and not goes_on)
        deepest = max(deepest, nesting(child, inner))
    return deepest


def deep_functions(path: Path, source: str) -> list[str]:
    functions = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef))
    depths = ((node, nesting(node)) for node in functions)
    return [f"{path}:{n.lineno}: {n.name} is nested {d} deep" for n, d in depths if d > NESTING]


def long_file(path: Path, source: str) -> list[str]:
    lines, limit = len(source.splitlines()), FILE_LINES[path.suffix]
    return [f"{path} has {lines} lines, over {limit}"] if lines > limit else []


@pytest.mark.parametrize("suffix", FILE_LINES)
def test_files_are_short(suffix: str) -> None:
    paths = source_files(*FOLDERS, suffix=suffix)
    found = [text for path in paths for text in long_file(path, (ROOT / path).read_text("utf-8"))]
    assert not found, "\n".join(found)


def test_functions_are_short() -> None:
    paths = source_files("ruda")
    sources = {path: (ROOT / path).read_text("utf-8") for path in paths}
    found = [text for path, source in sources.items() for text in long_functions(path, source)]
    assert not found, "\n".join(found)


def test_functions_are_flat() -> None:
    found = [
        text
        for path in source_files("ruda")
        for text in deep_functions(path, (ROOT / path).read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_no_file_is_a_drawer_for_anything() -> None:
    assert not [path for path in source_files(*FOLDERS) if path.stem == "utils"]


def test_planted_violations_are_found() -> None:
    docstring = '    """One.\n' + "    more\n" * 50 + '    """\n'
    body = "    x = 1\n"
    path = Path("ruda/planted.py")
    assert long_functions(path, "def f():\n" + docstring + body * 41)
    assert not long_functions(path, "def f():\n" + docstring + body * 40)
    assert long_functions(path, "class A:\n    def f(self):\n" + ("    " + body) * 41)
    assert long_file(path, "x = 1\n" * 601)
    assert not long_file(path, "x = 1\n" * 600)
    assert not long_file(Path("ruda/planted.cu"), "// x\n" * 800)
    deep = "def f():\n  for a in b:\n    if a:\n      with a:\n        {}\n"
    assert not deep_functions(path, deep.format("a = [c for c in b if c]"))
    assert deep_functions(path, deep.format("while a: a()"))
    other = "def f():\n" + "".join(f"  {word} a: b\n" for word in ("if", *["elif"] * 9))
    assert not deep_functions(path, other)
