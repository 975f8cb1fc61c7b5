"""The samples of all families, merged from the modules of this folder."""

from __future__ import annotations

import importlib
import pkgutil

from tests.table.sample import Bad, Composed, Sample

SAMPLES: dict[str, list[Sample]] = {}
BAD: list[Bad] = []
COMPOSED: list[Composed] = []
NO_GRADIENT: dict[str, str] = {}

for _found in pkgutil.iter_modules(__path__):
    _family = importlib.import_module(f"{__name__}.{_found.name}")
    for _row, _samples in getattr(_family, "SAMPLES", {}).items():
        SAMPLES.setdefault(_row, []).extend(_samples)
    BAD.extend(getattr(_family, "BAD", ()))
    COMPOSED.extend(getattr(_family, "COMPOSED", ()))
    NO_GRADIENT.update(getattr(_family, "NO_GRADIENT", {}))
