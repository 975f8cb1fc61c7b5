"""A folder of files with a manifest of their checksums: whole, or not there at all."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ruda.core.errors import StoreError
from ruda.store.atomic import replacing
from ruda.store.errors import MissingFileError, shown
from ruda.store.header import AGAIN
from ruda.store.jsonfile import read_json
from ruda.store.source import opened
from ruda.store.tree import as_json

MANIFEST = "manifest.json"

_FORMAT = "ruda checkpoint"
_VERSION = 1
_MAX_MANIFEST = 1 << 20
_FILE = re.compile(r"[a-z_]+\.(safetensors|json)")
_DIGEST = re.compile("[0-9a-f]{64}")


class Manifest(NamedTuple):
    """What a folder says of itself: the step, the metrics, and size and sha256 of each file."""

    step: int
    metrics: dict[str, float]
    files: dict[str, tuple[int, str]]


def write_manifest(folder: str, step: int, metrics: Mapping[str, float]) -> None:
    """Write the manifest of the files that lie in ``folder``, as its last file."""
    files = {
        name: {"size": os.path.getsize(where), "sha256": _digest(where)}
        for name in sorted(os.listdir(folder))
        if (where := os.path.join(folder, name))
    }
    facts: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "step": step, "files": files}
    # Numbers as text, because a metric may be infinite and JSON has no such number.
    facts["metrics"] = {name: repr(value) for name, value in metrics.items()}
    facts["sha256"] = hashlib.sha256(as_json(facts)).hexdigest()
    with replacing(os.path.join(folder, MANIFEST)) as file:
        file.write(as_json(facts))


def read_manifest(folder: str) -> Manifest:
    """Read a manifest, and no other file.

    Raises ``StoreError`` where it is absent, damaged, or names a file outside of its folder.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        facts = read_json(path, _MAX_MANIFEST)
    except MissingFileError as error:
        what, expected = "unfinished, or no checkpoint", MANIFEST
        raise StoreError("load", what, "no manifest", expected, AGAIN, folder) from error
    digest = facts.pop("sha256", None)
    try:
        is_whole = hashlib.sha256(as_json(facts)).hexdigest() == digest
        if is_whole and (facts["format"], facts["version"]) == (_FORMAT, _VERSION):
            return _parsed(facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what, got = "malformed manifest", f"{type(error).__name__}: {shown(str(error))}"
        raise StoreError("load", what, got, "what a save wrote", AGAIN, path) from error
    if not is_whole:
        raise StoreError("load", "damaged manifest", "another checksum", "its own", AGAIN, path)
    got = f"{shown(facts['format'])} {shown(facts['version'])}"
    expected, hint = f"{_FORMAT} {_VERSION}", "the version of ruda that wrote it"
    raise StoreError("load", "unknown format", got, expected, hint, path)


def check_files(folder: str, manifest: Manifest) -> None:
    """Raise ``StoreError`` unless each file is there and has the size and checksum it had."""
    for name, (size, digest) in manifest.files.items():
        path = os.path.join(folder, name)
        with opened(path) as file:
            found = os.fstat(file.fileno()).st_size
        if found != size:
            raise StoreError("load", "cut off or too long", f"{found} bytes", size, AGAIN, path)
        if _digest(path) != digest:
            raise StoreError("load", "damaged", "another checksum", digest, AGAIN, path)


def _parsed(facts: dict[str, Any]) -> Manifest:
    step, files = facts["step"], {}
    if type(step) is not int or step < 0:
        raise ValueError("the step is no number")
    for name, entry in facts["files"].items():
        size, digest = entry["size"], entry["sha256"]
        if not _FILE.fullmatch(name) or type(size) is not int or not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a file of a checkpoint: {shown(name)}")
        files[name] = (size, digest)
    metrics = {name: float(value) for name, value in facts["metrics"].items()}
    return Manifest(step, metrics, files)


def _digest(path: str) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
