"""JSON files of bounded size that are objects without a name twice."""

from __future__ import annotations

import json
from typing import Any

from ruda.core.errors import StoreError
from ruda.store.errors import shown
from ruda.store.header import AGAIN
from ruda.store.source import Path, read_small

MAX_JSON = 1 << 24


def read_json(path: Path, limit: int = MAX_JSON) -> dict[str, Any]:
    """Read an object; raises ``MissingFileError``, or ``StoreError`` for anything else."""
    raw = read_small(path, limit)
    what, expected = "malformed JSON", "an object"
    try:
        found = json.loads(raw, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        got = f"{type(error).__name__}: {shown(str(error))}"
        raise StoreError("load", what, got, expected, AGAIN, str(path)) from error
    if type(found) is not dict:
        raise StoreError("load", what, type(found).__name__, expected, AGAIN, str(path))
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
