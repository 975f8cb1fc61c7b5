"""Checkpoints of a training run, from which it goes on as if it had never stopped."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ruda.core.errors import ArgumentError, StoreError
from ruda.core.shapes import index
from ruda.store.atomic import replacing
from ruda.store.errors import CheckpointWarning, MissingFileError
from ruda.store.folder import appearing, locked, removed, step_name, steps_in, swept
from ruda.store.header import AGAIN
from ruda.store.jsonfile import read_json
from ruda.store.manifest import Manifest, check_files, read_manifest, write_manifest
from ruda.store.safetensors import load_arrays, save_arrays
from ruda.store.source import Path
from ruda.store.training import collected, put_back
from ruda.store.tree import as_json, decoded, encoded

_STATE = "state.json"
_MAX_STATE = 1 << 27
_MODES = ("min", "max")

T = TypeVar("T")


class Saved(NamedTuple):
    """A checkpoint that was found whole."""

    step: int
    path: str
    metrics: dict[str, float]


class Restored(NamedTuple):
    """What a checkpoint says besides the state that was put back."""

    step: int
    path: str
    metrics: dict[str, float]
    micro_batch: int
    extra: Any


class Checkpoint:
    """The checkpoints of one run in a folder: saved whole, kept by policy, restored exactly.

    The newest ``keep_last`` are kept (None keeps all), and the ``keep_best`` with the lowest or,
    with ``mode="max"``, highest ``metric``. What a killed process left unfinished is removed here.
    Raises ``ArgumentError`` for a policy that makes no sense.

    >>> import tempfile
    >>> model = ruda.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder, keep_last=2)
    ...     for step in range(4):
    ...         path = checkpoint.save(step, model=model)
    ...     checkpoint.steps(), checkpoint.restore(model=model).step
    ([2, 3], 3)
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep_last: int | None = 3,
        keep_best: int = 0,
        metric: str | None = None,
        mode: str = "min",
    ) -> None:
        if keep_last is not None and keep_last < 1:
            raise ArgumentError("Checkpoint", "keep_last is too small", keep_last, "at least 1")
        if keep_best < 0 or (keep_best and metric is None):
            got = f"keep_best={keep_best}, metric={metric}"
            raise ArgumentError("Checkpoint", "nothing tells the best", got, "the name of a metric")
        if mode not in _MODES:
            raise ArgumentError("Checkpoint", "unknown mode", repr(mode), " or ".join(_MODES))
        self.folder = os.fspath(folder)
        self.keep_last, self.keep_best = keep_last, keep_best
        self.metric, self.mode = metric, mode
        self.damaged: dict[str, str] = {}
        os.makedirs(self.folder, exist_ok=True)
        swept(self.folder)

    def __repr__(self) -> str:
        kept = f"keep_last={self.keep_last}, keep_best={self.keep_best}"
        return f"Checkpoint({self.folder!r}, {kept}, steps={self.steps()})"

    def steps(self) -> list[int]:
        """The steps there are, oldest first, without a look at whether they are whole."""
        return [step for step, _ in reversed(steps_in(self.folder))]

    def save(
        self,
        step: int,
        *,
        model: Any = None,
        optimizer: Any = None,
        schedule: Any = None,
        scaler: Any = None,
        generators: Any = None,
        loader: Any = None,
        metrics: Mapping[str, Any] | None = None,
        extra: Any = None,
        micro_batch: int = 0,
    ) -> str:
        """Save the state after ``step`` steps; return the path of its folder.

        Parts are objects with ``state_dict`` and ``load_state_dict`` or, but for the model,
        mappings of such objects. The default generator and the gradients that the model's
        parameters have at this moment are saved too. ``extra`` is any tree of numbers, strings,
        tensors and arrays; ``micro_batch`` how many batches the pending gradients are of. The
        folder appears whole or not at all; then what the policy does not keep is removed. Raises
        ``ArgumentError`` where later steps exist (see ``discard_after``) or the metric is not among
        ``metrics``, and ``StoreError`` for a state that cannot be stored, before anything is
        written.
        """
        number = index(step, "Checkpoint.save", "step")
        values = {name: float(value) for name, value in (metrics or {}).items()}
        self._check_new(number, values)
        parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
        parts |= {"generators": generators, "loader": loader}
        state = collected(parts) | {"extra": extra, "micro_batch": int(micro_batch)}
        sections = {name: encoded(tree, name) for name, tree in state.items()}
        stubs = as_json({name: stub for name, (stub, _) in sections.items()})
        if len(stubs) > _MAX_STATE:
            got, hint = f"{len(stubs)} bytes", "tensors or arrays in extra, instead of lists"
            raise StoreError("save", "too many plain values", got, _MAX_STATE, hint, self.folder)
        with locked(self.folder, wait=True):
            with appearing(self.folder, step_name(number)) as folder:
                _write(folder, {name: arrays for name, (_, arrays) in sections.items()}, stubs)
                write_manifest(folder, number, values)
            path = os.path.join(self.folder, step_name(number))
            self.damaged.pop(path, None)
            self._prune(number)
        return path

    def latest(self) -> Saved | None:
        """The newest checkpoint that is whole, or None where there is none at all.

        All its bytes are compared with their checksums. One that is damaged is passed over with a
        ``CheckpointWarning`` that says why; where all are, the last reason is raised.
        """
        return self._first(steps_in(self.folder), _verified)

    def best(self) -> Saved | None:
        """The checkpoint with the best metric among those that are whole, as ``latest`` does."""
        if self.metric is None:
            raise ArgumentError("Checkpoint.best", "nothing tells the best", hint="metric=")
        return self._first([(m.step, path) for m, path in self._ranked()], _verified)

    def restore(
        self,
        step: int | None = None,
        *,
        model: Any = None,
        optimizer: Any = None,
        schedule: Any = None,
        scaler: Any = None,
        generators: Any = None,
        loader: Any = None,
    ) -> Restored | None:
        """Put the state of a step, by default of ``latest``, back into the given parts.

        Returns None where there is no checkpoint at all. With an optimizer training goes on: then
        the pending gradients and the default generator come back too. Everything is checked before
        anything is written. Raises ``LoadError`` or ``StoreError`` for parts of another form than
        the saved ones, and as ``latest`` does; a ``step`` that is asked for is never replaced by
        another.
        """
        candidates = steps_in(self.folder)
        if step is not None:
            path = os.path.join(self.folder, step_name(index(step, "restore", "step")))
            if not os.path.isdir(path):
                raise MissingFileError(path)
            saved, state = _read(path)
        else:
            found = self._first(candidates, _read)
            if found is None:
                return None
            saved, state = found
        parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
        parts |= {"generators": generators, "loader": loader}
        put_back(state, parts, saved.path)
        return Restored(*saved, state["micro_batch"], state["extra"])

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, in order to go on from ``step`` another way."""
        with locked(self.folder, wait=True):
            for number, path in steps_in(self.folder):
                if number > step:
                    removed(self.folder, path)

    def _check_new(self, step: int, metrics: Mapping[str, float]) -> None:
        if step < 0:
            raise ArgumentError("Checkpoint.save", "the step is negative", step)
        if self.metric is not None and self.metric not in metrics:
            got, hint = sorted(metrics), f"metrics={{{self.metric!r}: value}}"
            raise ArgumentError("Checkpoint.save", "the metric is missing", got, self.metric, hint)
        later = [m.step for m, path in self._listed() if m.step > step and path not in self.damaged]
        if later:
            order, hint = f"step {step} after {max(later)}", f"discard_after({step - 1}) first"
            raise ArgumentError("Checkpoint.save", "later steps exist", order, hint=hint)

    def _first(self, candidates: Iterable[tuple[int, str]], read: Callable[[str], T]) -> T | None:
        """What ``read`` makes of the first candidate that is whole."""
        fault = None
        for _, path in candidates:
            try:
                return read(path)
            except StoreError as error:
                fault, self.damaged[path] = error, str(error)
                text = f"the checkpoint in {path!r} is passed over: {error}"
                warnings.warn(text, CheckpointWarning, stacklevel=3)
        if fault is not None:
            raise fault
        return None

    def _listed(self) -> list[tuple[Manifest, str]]:
        """The manifests that can be read, newest first."""
        found = []
        for _, path in steps_in(self.folder):
            try:
                found.append((read_manifest(path), path))
            except StoreError:
                # Never counted and never removed: ``latest`` says what is wrong with it.
                continue
        return found

    def _ranked(self) -> list[tuple[Manifest, str]]:
        """Those that have the metric, best first; of equals the newest."""
        sign = 1.0 if self.mode == "min" else -1.0
        scored = [
            (sign * value, manifest, path)
            for manifest, path in self._listed()
            if not math.isnan(value := manifest.metrics.get(self.metric or "", math.nan))
        ]
        scored.sort(key=lambda item: (item[0], -item[1].step))
        return [(manifest, path) for _, manifest, path in scored]

    def _prune(self, current: int) -> None:
        if self.keep_last is None:
            return
        listed = [item for item in self._listed() if item[1] not in self.damaged]
        best = self._ranked()[: self.keep_best] if self.keep_best else []
        kept = {path for _, path in (*listed[: self.keep_last], *best)}
        for manifest, path in listed:
            if path not in kept and manifest.step != current:
                removed(self.folder, path)


def _write(folder: str, sections: Mapping[str, Any], stubs: bytes) -> None:
    """The arrays of each section in a file of its own, and what stands around them."""
    for name, arrays in sections.items():
        if arrays:
            save_arrays(os.path.join(folder, _file(name)), arrays)
    with replacing(os.path.join(folder, _STATE)) as file:
        file.write(stubs)


def _file(section: str) -> str:
    return f"{section}.safetensors"


def _checked(path: str) -> Manifest:
    """The manifest of a folder all of whose files are as they were written."""
    manifest = read_manifest(path)
    if step_name(manifest.step) != os.path.basename(path):
        got, expected = f"step {manifest.step}", os.path.basename(path)
        raise StoreError("load", "the manifest is of another step", got, expected, AGAIN, path)
    check_files(path, manifest)
    return manifest


def _verified(path: str) -> Saved:
    manifest = _checked(path)
    return Saved(manifest.step, path, manifest.metrics)


def _read(path: str) -> tuple[Saved, dict[str, Any]]:
    """Read a whole checkpoint into memory."""
    manifest, where = _checked(path), os.path.join(path, _STATE)
    saved, state = Saved(manifest.step, path, manifest.metrics), {}
    for name, stub in read_json(where, _MAX_STATE).items():
        # Only what the manifest lists: its names are those of files in this folder.
        is_there = _file(name) in manifest.files
        arrays = load_arrays(os.path.join(path, _file(name)))[0] if is_there else {}
        state[name] = decoded(stub, arrays, where)
    absent = {"extra", "micro_batch", "default_generator"} - set(state)
    if absent:
        raise StoreError("load", "not a state", f"no {sorted(absent)}", "all parts", AGAIN, where)
    return saved, state
