"""What came of loading named tensors into a model, as data and as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ruda.core.errors import StoreError

_SHOWN = 8
# Comparing names costs the product of both numbers.
_COMPARED = 2000


@dataclass(frozen=True)
class LoadReport:
    """Names by what happened to them, and what may have been meant.

    ``applied``: written. ``missing``: in the model and not in the file. ``unused``: in the file and
    not in the model. ``shape_errors`` and ``dtype_errors``: what does not fit, by name, in words.
    ``suggestions``: the nearest name on the other side for missing and unused ones. ``remap``: a
    rule that would make names fit, or None.
    """

    applied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    shape_errors: dict[str, str] = field(default_factory=dict)
    dtype_errors: dict[str, str] = field(default_factory=dict)
    suggestions: dict[str, str] = field(default_factory=dict)
    remap: tuple[str, str] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything was applied and nothing was left over."""
        return not (self.missing or self.unused or self.shape_errors or self.dtype_errors)

    def __str__(self) -> str:
        lines = [f"{len(self.applied)} applied"]
        for label, names in (("missing", self.missing), ("unused", self.unused)):
            lines += self._named(label, names)
        for label, errors in (("shape", self.shape_errors), ("dtype", self.dtype_errors)):
            texts = [f"    {name}: {text}" for name, text in errors.items()]
            lines += _listed(f"{len(texts)} of another {label}:", texts)
        if self.remap is not None:
            lines.append(f"  try remap=[({self.remap[0]!r}, {self.remap[1]!r})]")
        return "\n".join(lines)

    def _named(self, label: str, names: tuple[str, ...]) -> list[str]:
        hints = {name: f" (near {self.suggestions[name]})" for name in self.suggestions}
        texts = [f"    {name}{hints.get(name, '')}" for name in names]
        return _listed(f"{len(texts)} {label}:", texts)


class LoadError(StoreError):
    """Tensors that do not fit the model they are loaded into; ``report`` says which and why.

    Nothing has been written.
    """

    def __init__(self, report: LoadReport, path: str | None = None) -> None:
        hint = None if report.shape_errors or report.dtype_errors else "strict=False"
        super().__init__("load_into", "the tensors do not fit the model", hint=hint, path=path)
        self.args = (report, path)
        self.report = report

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.report}"


def suggested(missing: Collection[str], unused: Collection[str]) -> dict[str, str]:
    """The nearest name among the unused for the first missing ones, and the other way round."""
    found: dict[str, str] = {}
    for names, others in ((missing, unused), (unused, missing)):
        candidates = list(others)[:_COMPARED]
        for name in list(names)[:_SHOWN]:
            near = difflib.get_close_matches(name, candidates, n=1)
            found |= {name: near[0]} if near else {}
    return found


def prefix_rule(missing: Collection[str], unused: Collection[str]) -> tuple[str, str] | None:
    """The rule for a first word that all of the file's names have, or lack, where that helps."""
    wanted, given = set(missing), set(unused)
    for word in _first_words(unused):
        if _fits(wanted, (name.removeprefix(word) for name in given)):
            return f"^{re.escape(word)}", ""
    for word in _first_words(missing):
        if _fits(wanted, (word + name for name in given)):
            return "^", word
    return None


def _first_words(names: Iterable[str]) -> list[str]:
    return sorted({name.split(".")[0] + "." for name in names if "." in name})[:_SHOWN]


def _fits(wanted: set[str], changed: Iterable[str]) -> bool:
    return 2 * len(wanted.intersection(changed)) > len(wanted)


def _listed(head: str, texts: list[str]) -> list[str]:
    if not texts:
        return []
    rest = [f"    and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return [f"  {head}", *texts[:_SHOWN], *rest]
