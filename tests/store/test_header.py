"""Damaged and hostile files: each raises a StoreError, and nothing else happens."""

from __future__ import annotations

import json
import os
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from ruda.core.errors import StoreError
from ruda.store.header import DTYPES, MAX_HEADER, parse_header
from ruda.store.safetensors import load_arrays, open_file, read_header, save_arrays

X = '"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
HUGE = 2**63


def packed(head: str | bytes, data: bytes = b"") -> bytes:
    raw = head.encode() if isinstance(head, str) else head
    return len(raw).to_bytes(8, "little") + raw + data


def tensor(dtype: str, shape: str, offsets: str, name: str = "x") -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(dtype: str, shape: str, offsets: str, data: bytes = b"") -> bytes:
    return packed("{" + tensor(dtype, shape, offsets) + "}", data)


def two(first: str, second: str, data: bytes) -> bytes:
    head = "{" + tensor("U8", "[4]", first, "a") + "," + tensor("U8", "[4]", second, "b") + "}"
    return packed(head, data)


HOSTILE = {
    "empty": (b"", "cut off"),
    "shorter than the length field": (b"\1\0\0", "cut off"),
    "header past the end": ((100).to_bytes(8, "little") + b"{}", "too long"),
    "header length 2**64 - 1": (b"\xff" * 8 + b"{}", "too long"),
    "no header": (packed(""), "malformed"),
    "zeros": (bytes(64), "malformed"),
    "not JSON": (packed("hello there"), "malformed"),
    "an array": (packed("[]"), "malformed"),
    "a string": (packed('"x"'), "malformed"),
    "null": (packed("null"), "malformed"),
    "cut JSON": (packed("{" + X, bytes(4)), "malformed"),
    "cut string": (packed('{"x'), "malformed"),
    "byte order mark": (packed("\ufeff{}"), "malformed"),
    "UTF-16": (packed("{}".encode("utf-16")), "malformed"),
    "trailing comma": (packed("{" + X + ",}", bytes(4)), "malformed"),
    "two commas": (packed("{,," + X + "}", bytes(4)), "malformed"),
    "text after the header": (packed("{" + X + "} x", bytes(4)), "malformed"),
    "zero bytes after the header": (packed("{" + X + "}\0\0", bytes(4)), "malformed"),
    "single quotes": (packed("{'x':{}}"), "malformed"),
    "comment": (packed("{/* */}"), "malformed"),
    "not UTF-8": (packed(b'{"\xff\xfe":{}}'), "malformed"),
    "overlong UTF-8": (packed(b'{"\xc0\x80":{}}'), "malformed"),
    "encoded surrogate": (packed(b'{"\xed\xa0\x80":{}}'), "malformed"),
    "escaped half surrogate": (packed('{"\\ud800":{}}'), "malformed"),
    "bad escape": (packed('{"\\x41":{}}'), "malformed"),
    "control character in a name": (packed('{"a\nb":{}}'), "malformed"),
    "name twice": (packed("{" + X + "," + X + "}", bytes(4)), "occurs twice"),
    "name twice, once escaped": (
        packed("{" + X + "," + X.replace('"x"', '"\\u0078"') + "}", bytes(4)),
        "occurs twice",
    ),
    "field twice": (packed(f'{{{X.replace("}", "")},"dtype":"U8"}}}}', bytes(4)), "occurs twice"),
    "metadata twice": (packed('{"__metadata__":{},"__metadata__":{}}'), "occurs twice"),
    "metadata key twice": (packed('{"__metadata__":{"a":"","a":""}}'), "occurs twice"),
    "metadata not an object": (packed('{"__metadata__":"a"}'), "malformed"),
    "metadata null": (packed('{"__metadata__":null}'), "malformed"),
    "metadata number": (packed('{"__metadata__":{"a":1}}'), "malformed"),
    "metadata nested": (packed('{"__metadata__":{"a":{}}}'), "malformed"),
    "entry is a number": (packed('{"x":1}'), "malformed"),
    "entry is an array": (packed('{"x":["U8",[4],[0,4]]}', bytes(4)), "malformed"),
    "entry is null": (packed('{"x":null}'), "malformed"),
    "entry is empty": (packed('{"x":{}}'), "missing field"),
    "entry without shape": (packed('{"x":{"dtype":"U8","data_offsets":[0,0]}}'), "missing field"),
    "entry without dtype": (packed('{"x":{"shape":[],"data_offsets":[0,1]}}', b"1"), "missing"),
    "entry with another field": (
        packed(f'{{{X[:-1]},"strides":[1]}}}}', bytes(4)),
        "unknown field",
    ),
    "dtype unknown": (one("F128", "[1]", "[0,16]", bytes(16)), "unsupported dtype"),
    "dtype of packed items": (one("F4", "[2]", "[0,1]", bytes(1)), "unsupported dtype"),
    "dtype in small letters": (one("u8", "[4]", "[0,4]", bytes(4)), "unsupported dtype"),
    "dtype is a number": (packed(X.join("{}").replace('"U8"', "8"), bytes(4)), "malformed"),
    "shape negative": (one("U8", "[-4]", "[0,4]", bytes(4)), "malformed"),
    "shape minus zero": (one("U8", "[-0]", "[0,0]"), "malformed"),
    "shape float": (one("U8", "[4.0]", "[0,4]", bytes(4)), "malformed"),
    "shape exponent": (one("U8", "[4e0]", "[0,4]", bytes(4)), "malformed"),
    "shape leading zero": (one("U8", "[04]", "[0,4]", bytes(4)), "malformed"),
    "shape hexadecimal": (one("U8", "[0x4]", "[0,4]", bytes(4)), "malformed"),
    "shape string": (one("U8", '["4"]', "[0,4]", bytes(4)), "malformed"),
    "shape true": (one("U8", "[true]", "[0,1]", bytes(1)), "malformed"),
    "shape nested": (one("U8", "[[4]]", "[0,4]", bytes(4)), "malformed"),
    "shape not a list": (one("U8", "4", "[0,4]", bytes(4)), "malformed"),
    "shape NaN": (one("U8", "[NaN]", "[0,4]", bytes(4)), "malformed"),
    "shape Infinity": (one("U8", "[Infinity]", "[0,4]", bytes(4)), "malformed"),
    "shape 2**63": (one("U8", f"[{HUGE}]", "[0,4]", bytes(4)), "malformed"),
    "shape 2**64 + 4": (one("U8", f"[{2 * HUGE + 4}]", "[0,4]", bytes(4)), "malformed"),
    "shape of 5000 digits": (one("U8", f"[{'9' * 5000}]", "[0,4]", bytes(4)), "malformed"),
    "product overflows to 4": (
        one("U8", f"[{2**62 + 1},4]", "[0,4]", bytes(4)),
        "shape is too large",
    ),
    "product overflows with itemsize": (one("F64", f"[{2**61}]", "[0,0]"), "shape is too large"),
    "zero beside huge axes": (one("U8", f"[0,{2**62},{2**62}]", "[0,0]"), "shape is too large"),
    "rank 65": (one("U8", json.dumps([1] * 65), "[0,1]", bytes(1)), "too many integers"),
    "shape smaller than its bytes": (one("U8", "[3]", "[0,4]", bytes(4)), "differ"),
    "shape larger than its bytes": (one("F32", "[4]", "[0,4]", bytes(4)), "differ"),
    "zero size with bytes": (one("U8", "[0]", "[0,4]", bytes(4)), "differ"),
    "one offset": (one("U8", "[4]", "[4]", bytes(4)), "data_offsets out of range"),
    "three offsets": (one("U8", "[4]", "[0,4,4]", bytes(4)), "data_offsets out of range"),
    "offsets backwards": (one("U8", "[4]", "[4,0]", bytes(4)), "data_offsets out of range"),
    "offsets negative": (one("U8", "[4]", "[-4,0]", bytes(4)), "malformed"),
    "offsets past the end": (one("U8", "[8]", "[0,8]", bytes(4)), "data_offsets out of range"),
    "offsets 2**63 - 1": (one("U8", f"[{HUGE - 1}]", f"[0,{HUGE - 1}]"), "out of range"),
    "hole at the start": (one("U8", "[4]", "[4,8]", bytes(8)), "hole"),
    "hole between": (two("[0,4]", "[6,10]", bytes(10)), "hole"),
    "overlap": (two("[0,4]", "[2,6]", bytes(6)), "overlap"),
    "same bytes twice": (two("[0,4]", "[0,4]", bytes(4)), "overlap"),
    "zero size inside another": (
        packed("{" + X + "," + tensor("U8", "[0]", "[2,2]", "z") + "}", bytes(4)),
        "overlap",
    ),
    "trailing bytes": (one("U8", "[4]", "[0,4]", bytes(5)), "belongs to no tensor"),
    "data without tensors": (packed("{}", bytes(4)), "belongs to no tensor"),
    "truncated data": (one("U8", "[4]", "[0,4]", bytes(3)), "data_offsets out of range"),
    "nested arrays": (packed("[" * 200_000), "malformed"),
    "nested objects": (packed('{"a":' * 200_000), "unknown field"),
    "nested metadata": (packed('{"__metadata__":' * 200_000), "malformed"),
    "nested shape": (one("U8", "[" * 200_000, "[0,0]"), "malformed"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_raise(tmp_path, case):
    content, words = HOSTILE[case]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    for read in (read_header, load_arrays, open_file):
        with pytest.raises(StoreError, match=words) as caught:
            read(path)
        assert caught.value.path == str(path)
        text = str(caught.value)
        assert text.startswith("load: ")
        assert all(word in text for word in ("Got ", "Expected ", "Try "))
        assert len(text) < 1000


def test_headers_of_more_than_100_mb_are_not_read(tmp_path):
    path = tmp_path / "sparse.safetensors"
    path.write_bytes((MAX_HEADER + 1).to_bytes(8, "little") + b"{}")
    os.truncate(path, 2 * MAX_HEADER)
    with pytest.raises(StoreError, match=f"too long.*Expected at most {MAX_HEADER}"):
        read_header(path)


def test_booleans_other_than_0_and_1_raise(tmp_path):
    path = tmp_path / "bool.safetensors"
    path.write_bytes(one("BOOL", "[4]", "[0,4]", b"\0\1\2\0"))
    assert read_header(path).tensors["x"].dtype == "BOOL"
    with pytest.raises(StoreError, match="not booleans for tensor 'x'"):
        load_arrays(path)
    with open_file(path) as lazy, pytest.raises(StoreError, match="not booleans") as caught:
        lazy["x"]
    assert caught.value.tensor == "x"


def test_unusual_but_valid_headers_load():
    spaced = X.replace(":", " :\r\n\t ").replace(",", " , ")
    head = f' {{ {spaced} , "__metadata__" : {{ "a" : "\\ud83d\\ude00\\/\\u00e9" }} }} \n'.encode()
    header = parse_header(head, 4, "spaced")
    assert header.tensors["x"] == ("U8", (4,), 0, 4)
    assert header.metadata == {"a": "\U0001f600/é"}
    assert header.data_start == 8 + len(head)
    zeros = [tensor("U8", f"[{i},0]", "[4,4]", f"z{i}") for i in range(3)]
    head = "{" + ",".join([*zeros, X, tensor("F64", "[0]", "[0,0]", "first")]) + "}"
    assert len(parse_header(head.encode(), 4, "zeros").tensors) == 5


def test_long_names_are_cut_in_messages():
    name = "n" * 10_000
    with pytest.raises(StoreError) as caught:
        parse_header(("{" + tensor("F128", "[]", "[0,0]", name) + "}").encode(), 0, "long")
    assert caught.value.tensor == name
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ((MAX_HEADER - 1).to_bytes(8, "little") + b"{}", 50_000),
        (one("F64", "[1000000000]", "[0,8000000000]"), 50_000),
        (one("U8", "[" + "[]," * 300_000, "[0,0]"), 1_200_000),
        (one("U8", "[" + "1," * 300_000 + "1]", "[0,1]", b"0"), 900_000),
        (packed("{" + '"":{"":' * 100_000), 1_000_000),
    ],
)
def test_hostile_files_allocate_little(tmp_path, content, limit):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError):
        load_arrays(path)
    tracemalloc.start()
    try:
        for read in (load_arrays, open_file):
            with pytest.raises(StoreError):
                read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Twice for the header itself: once as a buffer, at most once more as the token at hand.
    assert peak < limit


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One or two flips, cuts, insertions or moved pieces; half of them in the header."""
    work = bytearray(content)
    for _ in range(rng.integers(1, 3)):
        reach = max(min(len(work), 700) if rng.random() < 0.5 else len(work), 2)
        low, high = sorted(rng.integers(0, reach, 2))
        size = rng.integers(1, 40)
        kind = rng.integers(0, 8)
        if kind == 0:
            del work[low:]
        elif kind == 1:
            del work[low : low + size]
        elif kind == 2:
            work[low:low] = rng.integers(0, 256, size, np.uint8).tobytes()
        elif kind == 3:
            work[low:low] = work[high : high + size]
        elif kind == 4:
            work[low : low + 1] = (
                rng.choice(list(b'0123456789{}[],:" \\'), 1).astype("u1").tobytes()
            )
        elif kind == 5:
            work[low : low + size] = work[high : high + size]
        elif low < len(work):
            work[low] ^= 1 << rng.integers(0, 8)
    return bytes(work)


def test_random_mutations_load_something_valid_or_raise(tmp_path):
    path, again = tmp_path / "mutated.safetensors", tmp_path / "again.safetensors"
    rng = np.random.default_rng(20_24)
    arrays = {f"layer.{code}": np.ones((20, 7), dtype) for code, dtype in DTYPES.items()}
    arrays["empty"] = np.zeros((0, 4), ml_dtypes.bfloat16)
    save_arrays(path, arrays, {"format": "pt"})
    content = path.read_bytes()
    outcomes = {"loaded": 0, "raised": 0}
    for _ in range(500):
        path.write_bytes(mutated(content, rng))
        try:
            loaded, metadata = load_arrays(path)
        except StoreError:
            outcomes["raised"] += 1
            with pytest.raises(StoreError), open_file(path) as lazy:
                dict(lazy)
            continue
        outcomes["loaded"] += 1
        save_arrays(again, loaded, metadata)
        reloaded, _ = load_arrays(again)
        with open_file(path) as lazy:
            for name, array in loaded.items():
                assert array.tobytes() == lazy[name].tobytes() == reloaded[name].tobytes()
        assert_reference_agrees(path.read_bytes(), loaded)
    assert min(outcomes.values()) > 20, outcomes


def assert_reference_agrees(content: bytes, loaded: dict[str, np.ndarray]) -> None:
    try:
        import safetensors
    except ImportError:
        return
    theirs = dict(safetensors.deserialize(content))
    assert theirs.keys() == loaded.keys()
    for name, array in loaded.items():
        assert bytes(theirs[name]["data"]) == array.tobytes()
        assert tuple(theirs[name]["shape"]) == array.shape
        assert DTYPES[theirs[name]["dtype"]] == array.dtype
