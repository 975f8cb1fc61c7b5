"""What tasks are made of: cells and arrays at addresses, calls of addresses, shared counters."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from ruda.backends.numpy.kernels.compiler import inline

_WORD, _INT, _FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
_ADDRESS = types.int64


def _pointer_to(kind: Any) -> Any:
    """An intrinsic from an address to a pointer of ``kind``."""

    @intrinsic
    def pointer(_: Any, address: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(_ADDRESS), make

    return pointer


_words, _singles = _pointer_to(types.int64), _pointer_to(types.float32)
_doubles, _integers = _pointer_to(types.float64), _pointer_to(types.int32)


@inline
def words(address, size):
    """The int64 array at ``address``."""
    return carray(_words(address), size)


@inline
def singles(address, size):
    """The float32 array at ``address``."""
    return carray(_singles(address), size)


@inline
def rows_at(address, rows, n):
    """The float32 matrix at ``address``."""
    return carray(_singles(address), (rows, n))


@inline
def table_of(address, sums, rows, n):
    """A matrix as [1, rows, n] of float32 and of int32, and a number for each row."""
    shape = (1, rows, n)
    matrix, bits = carray(_singles(address), shape), carray(_integers(address), shape)
    return matrix, bits, carray(_singles(sums), (1, rows))


@inline
def number(address):
    """The float32 nearest to the float64 at ``address``."""
    return np.float32(carray(_doubles(address), 1)[0])


def _word_at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _WORD.as_pointer())


@intrinsic
def load(_: Any, address: Any) -> Any:
    """The word at ``address``, as other threads have left it."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word_at(builder, args[0]), "seq_cst", 8)

    return types.int64(_ADDRESS), make


@intrinsic
def store(_: Any, address: Any, value: Any) -> Any:
    """Put ``value`` where other threads see it; gives the value."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word_at(builder, args[0]), "seq_cst", 8)
        return args[1]

    return types.int64(_ADDRESS, types.int64), make


@intrinsic
def add(_: Any, address: Any, value: Any) -> Any:
    """Add to a word at once; gives what it was before."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _word_at(builder, args[0]), args[1], "seq_cst")

    return types.int64(_ADDRESS, types.int64), make


@intrinsic
def swap(_: Any, address: Any, before: Any, after: Any) -> Any:
    """Replace ``before`` by ``after``; whether the word was ``before``."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _word_at(builder, args[0])
        found = builder.cmpxchg(place, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(_ADDRESS, types.int64, types.int64), make


@intrinsic
def perform(_: Any, function: Any, cells: Any, part: Any) -> Any:
    """Call the task at an address with its cells and the number of a part."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(_ADDRESS, _ADDRESS, types.int64), make


@intrinsic
def step_aside(_: Any, function: Any) -> Any:
    """Call ``sched_yield`` at an address."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_INT, [])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [])

    return types.int32(_ADDRESS), make


@intrinsic
def sgemm(_: Any, function: Any, ta: Any, tb: Any, m: Any, n: Any, k: Any, *six: Any) -> Any:
    """``cblas_sgemm`` at an address: row-major C = A B; ``six``: a, lda, b, ldb, c, ldc."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        f, ta, tb, m, n, k, rest = args
        a, lda, b, ldb, c, ldc = (builder.extract_value(rest, i) for i in range(6))
        byte, number = ir.IntType(8).as_pointer(), _FLOAT
        kinds = [_INT] * 3 + [_WORD] * 3 + [number, byte, _WORD, byte, _WORD, number, byte, _WORD]
        kind = ir.FunctionType(ir.VoidType(), kinds)
        # CblasRowMajor is 101, CblasNoTrans 111, CblasTrans 112.
        flags = [builder.trunc(builder.add(x, _WORD(111)), _INT) for x in (ta, tb)]
        a, b, c = (builder.inttoptr(x, byte) for x in (a, b, c))
        given = [_INT(101), *flags, m, n, k, number(1.0), a, lda, b, ldb, number(0.0), c, ldc]
        builder.call(builder.inttoptr(f, kind.as_pointer()), given)
        return m

    given = [types.int64] * 6 + [types.StarArgTuple.from_types(six)]
    return types.int64(*given), make
