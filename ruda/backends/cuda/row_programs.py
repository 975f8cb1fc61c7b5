"""What row kernels compute, and the classes that they are made for.

A program says what happens to a pack of elements in each pass over a row, and what is done with
the values folded over the row between passes. A kernel is made per class (program, dtypes, forms,
ranks, width of the group), never per shape; ``codegen_rows`` writes its CUDA C.
"""

from __future__ import annotations

from dataclasses import dataclass

from ruda.backends.cuda.types import code_of, computed
from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Pass:
    """One sweep over the row.

    ``pack`` is done with arrays of ``VEC`` elements under the names of ``reads``; those of
    ``writes`` are stored after it. ``folds`` are the values that it gathers, as (name, "Sum",
    "Max" or "Min", start in C); ``then`` follows, once a row, when they are folded over the group.

    Where ``grows`` names all else that the pack changes, it is done to what lies behind the row as
    well and undone: a kept row needs no branches then.
    """

    reads: tuple[str, ...]
    pack: str
    folds: tuple[tuple[str, str, str], ...] = ()
    then: str = ""
    writes: tuple[str, ...] = ()
    grows: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Program:
    """What a row kernel computes.

    ``each`` is done to the packs as soon as they are read, in every pass; ``before`` once a row.
    ``sums`` are added up over rows, element by element, by ``gather`` in the last pass.
    ``row_outs`` are written once a row, from variables of their names; ``scalars`` are attributes.
    ``row_types`` are the dtypes of ``row_outs`` where they are not that of the statistics.
    ``functions`` stand in front of the kernel. With ``faults`` the kernel has a parameter of that
    name and type, to tell of an index that is out of range. ``folded`` is the most values that the
    text of a pass folds together by itself. A multiprocessor has up to ``resident`` threads of
    clusters, if values take a register each and rows begin at whole packs. A ``brief`` one keeps
    rows where a warp has room for them, and reads longer ones.
    """

    name: str
    passes: tuple[Pass, ...]
    each: str = ""
    before: str = ""
    sums: tuple[str, ...] = ()
    gather: str = ""
    row_outs: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    functions: str = ""
    faults: bool = False
    row_types: tuple[DType, ...] = ()
    folded: int = 1
    resident: int = 1024
    brief: bool = False


@dataclass(frozen=True)
class Input:
    """An operand: ``role`` is "rows" (the elements), "column" (along the row), "row" or "one".

    One of the role "value" is a double, or an int64, that is passed by value. What is ``raw`` keeps
    its own type: a pack of it is an array ``name.at``.

    ``form`` is how a pack is read: "dense" or "same" (one element for all); "each" without packs.
    Rows ``by`` an operand of the role "row" begin where its integer says: numbers ``{by}_length``
    and ``{by}_step`` are scalars of the program, which tells of faults. One that is
    ``still`` is the same for all rows.
    """

    name: str
    dtype: DType
    role: str
    form: str = "each"
    raw: bool = False
    by: str = ""
    wraps: bool = False
    still: bool = False

    @property
    def value(self) -> str:
        """The C type of a value of a row."""
        if self.raw:
            return computed(self.dtype)
        return "i64" if self.dtype.is_integer else "T"


@dataclass(frozen=True)
class Output:
    """An output of the shape of the rows."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Rows:
    """A class of row kernels; ``outer`` and ``inner`` count axes after collapsing.

    One that ``keeps`` has what it needs of columns in shared memory, for all its rows. Where
    rows are ``skewed`` they begin anywhere, and their packs at multiples of one all the same;
    ``spare`` elements behind a pack are read, too. Where blocks of a row work ``apart``, each has
    a piece of it, and nothing is folded. Blocks of a cluster may have several rows ``abreast``,
    each with threads of its own, and all with the same columns. A ``piped`` one has two passes, and
    is a row further in the first than in the second.
    """

    program: Program
    inputs: tuple[Input, ...]
    outs: tuple[Output, ...]
    row_dtype: DType
    compute: DType
    mode: str
    lanes: int
    per: int
    vec: int
    outer: int = 1
    inner: int = 1
    ring: int = 0
    cluster: int = 1
    keeps: bool = False
    skewed: bool = False
    spare: int = 0
    apart: bool = False
    abreast: int = 1
    piped: bool = False

    @property
    def threads(self) -> int:
        """Threads of one group that is more than a warp, or of a block of many that are not."""
        return self.lanes // self.cluster if self.lanes > 32 else 128

    @property
    def walks(self) -> bool:
        """Whether blocks walk over rows that they have on their way beforehand."""
        # The threads of a cluster keep more: there is no room for the next row beside it.
        ahead = bool(self.program.sums) and self.cluster == 1
        return self.piped or (self.mode == "held" and (ahead or self.ring > 0))

    @property
    def resident(self) -> int:
        """Threads of a multiprocessor that work on rows of clusters, by what they keep."""
        if self.program.sums:
            return 512
        if self.skewed or self.compute.itemsize > 4:
            return 768 if self._roomy else 1024
        return self.program.resident

    @property
    def _roomy(self) -> bool:
        """Whether blocks of a cluster, each with a row, need registers or room for columns."""
        columns = self.of("column")
        alone = self.skewed and self.cluster > 1 and self.abreast == 1
        wide = any(i.dtype.itemsize * self.vec > 16 for i in columns)
        return alone and bool(columns) and (wide or not self.keeps)

    @property
    def stays(self) -> bool:
        """Whether blocks that have rows alone stay for many, with what they keep of columns."""
        return self.keeps and self.cluster == 1 and not self.piped

    @property
    def alike(self) -> bool:
        """Whether all rows of a block begin alike, as far as packs are concerned."""
        return self.skewed and (self.keeps or self.piped)

    @property
    def moves(self) -> bool:
        """Whether columns are moved to where rows begin while the first of them is read."""
        return self.alike and not self.piped

    @property
    def by_kind(self) -> bool:
        """Whether blocks have one row after the other of those that begin alike.

        Where all blocks work on neighbours instead, those of one are as many rows apart as there
        are blocks, a multiple of a pack. That was quicker but for rows abreast, of which so many
        clusters as run at a time may be any number.
        """
        return self.moves and self.abreast > 1

    @property
    def kept(self) -> list[Input]:
        """The columns that are in shared memory."""
        return self.of("column") if self.keeps else []

    @property
    def groups(self) -> int:
        """Rows that a block works on at a time."""
        return self.abreast * max(1, self.threads // self.lanes)

    @property
    def name(self) -> str:
        """The name of the kernel: readable, and different for different classes."""
        forms = {"dense": "d", "same": "s", "each": ""}
        codes = "_".join(
            code_of(i.dtype) + forms[i.form] + "_by" * bool(i.by) + "s" * i.still
            for i in self.inputs
        )
        outs = "_".join(code_of(o.dtype) for o in self.outs)
        size = f"{self.mode}{self.lanes}x{self.per}x{self.vec}_r{self.outer}{self.inner}"
        size += f"_ring{self.ring}" if self.ring else ""
        size += f"_cluster{self.cluster}" if self.cluster > 1 else ""
        size += "_apart" * self.apart + "_keeps" * self.keeps + "_skewed" * self.skewed
        size += f"_abreast{self.abreast}" if self.abreast > 1 else ""
        size += "_piped" * self.piped
        return f"{self.program.name}_{codes}_to_{outs or code_of(self.row_dtype)}_{size}"

    @property
    def row_types(self) -> tuple[DType, ...]:
        """The dtypes of what is written once a row."""
        return self.program.row_types or (self.row_dtype,) * len(self.program.row_outs)

    @property
    def folded(self) -> int:
        """The most values that are folded together."""
        return max(self.program.folded, *(len(p.folds) for p in self.program.passes))

    def of(self, role: str) -> list[Input]:
        """The operands of a role."""
        return [i for i in self.inputs if i.role == role]

    @property
    def shared(self) -> int:
        """Bytes of what the blocks of a cluster send each other, of the ring, and of columns."""
        nbytes = self.ring * sum(i.dtype.itemsize for i in self.of("rows"))
        return self.sent + self.beside + self.vec * self.per * self.threads * nbytes

    @property
    def beside(self) -> int:
        """Bytes of columns in shared memory."""
        return self.per * sum(self.room_of(i) for i in self.kept)

    def room_of(self, column: Input) -> int:
        """Bytes of shared memory for a pack of a column of each thread."""
        return column.dtype.itemsize * self.vec * self.slots

    @property
    def slots(self) -> int:
        """Threads of a block that have a row, or of a warp."""
        return self.lanes // self.cluster

    @property
    def sent(self) -> int:
        """Bytes of what the blocks of a cluster send each other."""
        values = self.folded * 2 * (32 + self.cluster)
        return self.abreast * (16 + self.compute.itemsize * values) if self.cluster > 1 else 0
