"""CUDA C of the step "read at": an element of a step's result lies somewhere in a tensor in memory.

A reading has pieces. Each is a tensor with a place for every element: strides along the axes of the
result, an offset, and what tensors of integers add to it. Some hold for a part of the result alone,
within bounds along axes; where none holds there is a value. So it stands for slices that are put
together, for padding and for what indices point to alike. What differs from shape to shape comes
with the geometry of the launch, as ``number``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ruda.backends.cuda.types import stored
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Walker:
    """A place that goes along with the elements of a region; forms are those of operands."""

    name: str
    form: str

    def at(self, count: int) -> str:
        """The place at hand, of pack ``i`` of ``count`` elements."""
        if self.form == "single":
            return "0"
        return f"{self.name}_at" if self.form != "dense" else f"i * {count}"


@dataclass(frozen=True)
class Piece:
    """A tensor ``data`` that is read at the place ``at``, where all of ``bounds`` hold.

    With ``index`` its ``count`` integers from the place ``spot`` on are added.
    """

    data: str
    dtype: DType
    at: Walker
    bounds: tuple[Walker, ...] = ()
    index: str = ""
    spot: Walker | None = None
    count: int = 0
    wraps: bool = False

    @property
    def numbers(self) -> int:
        """How many numbers belong to it: those that ``prim.reading`` lists in the same order."""
        return 1 + 2 * len(self.bounds) + (1 + 2 * self.count) * bool(self.index)


@dataclass(frozen=True)
class Read:
    """The pieces of step ``step``, and the name of the value beside them."""

    step: int
    pieces: tuple[Piece, ...]
    fill: str = ""


HEADER = '#include "ruda/faults.cuh"\n'

FUNCTIONS = """
template <class OUT, int N, class E> __device__ __forceinline__ Pack<OUT, N> taken(const E* from) {
    const Pack<E, N> pack = *reinterpret_cast<const Pack<E, N>*>(from);
    Pack<OUT, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = to<OUT>(pack.at[k]);
    return out;
}
template <class OUT, int N> __device__ __forceinline__ Pack<OUT, N> repeated(OUT value) {
    Pack<OUT, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = value;
    return out;
}
template <class OUT> __device__ __forceinline__ OUT of_bits(u64 bits) {
    return *reinterpret_cast<const OUT*>(&bits);
}
// Where an index points on an axis of `length`; one that is out of range is told and clamped.
template <bool WRAPS, class I, class T>
__device__ __forceinline__ I pointed(const T* index, I where, I length, const Faults& faults,
                                     int which) {
    const T value = index[where];
    i64 place = place_of<WRAPS>(value, (i64)length);
    if (place < 0 || place >= (i64)length) {
        report(faults, (i64)value, (i64)where, which);
        place = clamped(place, (i64)length);
    }
    return (I)place;
}
"""


def lines(read: Read, out: DType, count: int, first: int, index: str) -> list[str]:
    """The pack ``t_read`` of one step; its numbers begin at ``first``, offsets are ``index``."""
    kind, found = stored(out), f"t{read.step}_read"
    text = [f"        Pack<{kind}, {count}> {found};"]
    last, joint = len(read.pieces) - 1, "        "
    for j, piece in enumerate(read.pieces):
        holds = _holds(piece, count, first + 1, index)
        if holds and (j < last or read.fill):
            text.append(f"{joint}if ({holds}) {{")
        else:
            text.append(f"{joint}{{")
        text += _piece(piece, found, kind, count, first, index)
        first += piece.numbers
        joint = "        } else "
    if read.fill:
        text.append(f"{joint}{{")
        value = f"of_bits<{kind}>({read.fill}_bits)"
        text.append(f"            {found} = repeated<{kind}, {count}>({value});")
    return [*text, "        }"]


def _holds(piece: Piece, count: int, first: int, index: str) -> str:
    """Whether the element lies within the bounds."""
    unsigned = "u" + index[1:]
    return " && ".join(
        f"({unsigned})({walker.at(count)} - at.number[{first + 2 * j}])"
        f" < ({unsigned})at.number[{first + 2 * j + 1}]"
        for j, walker in enumerate(piece.bounds)
    )


def _piece(piece: Piece, found: str, kind: str, count: int, first: int, index: str) -> list[str]:
    """Reading from one tensor."""
    lead = " " * 12
    text = [f"{lead}{index} from = {piece.at.at(count)} + at.number[{first}];"]
    apart = first + 1 + 2 * len(piece.bounds)
    for k in range(piece.count):
        assert piece.spot is not None
        where = f"({index})({piece.spot.at(count)} + {k} * at.number[{apart}])"
        length, step = apart + 1 + k, apart + 1 + piece.count + k
        call = f"pointed<{str(piece.wraps).lower()}, {index}>"
        given = f"{piece.index}_data, {where}, at.number[{length}], faults_{found}, {k}"
        text.append(f"{lead}from += {call}({given}) * at.number[{step}];")
    if count > 1 and piece.at.form in ("same", "single"):
        value = f"to<{kind}>({piece.data}_data[from])"
        return [*text, f"{lead}{found} = repeated<{kind}, {count}>({value});"]
    return [*text, f"{lead}{found} = taken<{kind}, {count}>({piece.data}_data + from);"]


def parameters(read: Read) -> list[str]:
    """What a reading adds to the parameters of its kernel."""
    points = any(piece.index for piece in read.pieces)
    return [f"const Faults faults_t{read.step}_read"] if points else []
