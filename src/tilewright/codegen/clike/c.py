"""C99, with pragmas of OpenMP: one function a loop function, thread loops as loops.

The function is ``int32_t NAME(buffers…, sizes…)``: pointers to the arguments in their order, aligned to 64
bytes and not overlapping (but for those of one alias group), and the sizes as ``int64_t``. It returns 0,
``n`` where assumption number ``n`` (from 1) of the function does not hold, and -1 where there was no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.codegen.clike.dialect import ALL_CALLS, Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.statements import (
    ALIGNMENT,
    Statements,
    constant_extent,
    is_unrolled,
    updated_at_once,
)
from tilewright.codegen.clike.writer import INDENT, Writer, entry_name
from tilewright.ir import (
    DTYPES,
    Alloc,
    AtomicUpdate,
    Barrier,
    Exec,
    For,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    stmt_children,
)
from tilewright.lower import lower
from tilewright.support import ScheduleError, TargetError
from tilewright.target import BUILT_IN, Operations

STACK_BYTES: Final = 1 << 16
"""Larger allocations come from the heap."""

C99: Final = Dialect(
    name="C",
    types=MappingProxyType({
        "f64": "double", "f32": "float", "f16": "float", "bf16": "float", "i64": "int64_t", "i32": "int32_t",
        "i16": "int16_t", "i8": "int8_t", "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t",
        "u8": "uint8_t", "bool": "int",
    }),
    storage=MappingProxyType({"f16": "uint16_t", "bf16": "uint16_t", "bool": "uint8_t"}),
    inline="static inline",
    restrict="restrict",
    functions=MappingProxyType({}),
    prelude="#include <math.h>\n#include <stdint.h>\n#include <stdlib.h>\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CSource:
    """A translation unit, and the functions in it, in order."""

    symbols: tuple[str, ...]
    text: str

    @property
    def symbol(self) -> str:
        """The only function."""
        (symbol,) = self.symbols
        return symbol


def lower_for_c(func: LoopFunction, instructions: Operations = BUILT_IN) -> LoopFunction:
    """Lower a scheduled function to what :func:`emit_c` takes: loops in the place of ``instructions``.

    Raises TargetError for an instruction that is not among them.
    """
    return lower(func, native=ALL_CALLS, one_by_one=True, expanded=instructions)


def emit_c(*functions: LoopFunction, openmp: bool = True) -> CSource:
    """Lowered functions as C99.

    Without ``openmp`` parallel loops are plain loops. Functions come from :func:`lower_for_c`: raises
    TargetError for instructions. Raises ScheduleError for barriers inside of thread loops: here the threads
    of a block run one after the other.
    """
    helpers = Helpers(C99)
    symbols: dict[str, None] = {}
    texts = []
    for func in functions:
        symbol = entry_name(func.name)
        if symbol in symbols:
            symbol = f"{symbol}_{len(symbols)}"
        symbols[symbol] = None
        texts.append(_function(func, symbol, helpers, openmp))
    return CSource(tuple(symbols), "\n".join([C99.prelude, *helpers.text(), "", *texts]))


def _function(func: LoopFunction, symbol: str, helpers: Helpers, openmp: bool) -> str:
    writer = Writer()
    body = _CStatements(helpers, writer, openmp=openmp)
    arguments = []
    for b in func.buffers:
        name = writer.name(b.name)
        const = "" if b.name in func.outputs else "const "
        alone = f"{C99.restrict} " if b.alias is None else ""
        arguments.append(f"{const}{C99.storage_type(b.dtype)} *{alone}{name}")
        body.arguments[b.name] = name
    for p in func.params:
        body.names[p.name] = writer.name(p.name)
        arguments.append(f"int64_t {body.names[p.name]}")
    for b in func.buffers:
        body.declare(b, body.arguments[b.name])
    for n, c in enumerate(func.assumes, 1):
        writer.line(f"if (!({body.condition(c)})) return {n};")
    body.atomic = updated_at_once(func.body)
    with writer.aside() as lines:
        body.stmt(func.body)
    if body.allocates:
        writer.line("int tw_failed = 0;")
    writer.lines.extend(line.removeprefix(INDENT) for line in lines)
    writer.line("return tw_failed ? -1 : 0;" if body.allocates else "return 0;")
    head = f"int32_t {symbol}({', '.join(arguments) or 'void'})"
    return "\n".join([head, "{", *writer.lines, "}", ""])


class _CStatements(Statements):
    def __init__(self, helpers: Helpers, writer: Writer, *, openmp: bool) -> None:
        super().__init__(C99, helpers, writer, wide=True)
        self.arguments: dict[str, str] = {}
        self._openmp = openmp
        self._in_parallel = False
        self._in_threads = False
        self.allocates = False
        """Whether the heap was used, which may have no memory left."""

    def pragmas(self, s: For) -> list[str]:
        if self._openmp and self._starts_threads(s):
            return ["#pragma omp parallel for"]
        if self._openmp and s.kind.name == "vector" and _has_lanes(s.body, s.var):
            return ["#pragma omp simd"]
        factor = is_unrolled(s)
        return [f"#pragma GCC unroll {factor}"] if factor > 1 else []

    def _starts_threads(self, s: For) -> bool:
        return not self._in_parallel and (s.kind.name == "parallel" or s.kind.axis.startswith("block"))

    def body(self, s: For) -> None:
        outer = self._in_parallel, self._in_threads
        self._in_parallel |= self._starts_threads(s)
        self._in_threads |= s.kind.axis.startswith("thread")
        super().body(s)
        self._in_parallel, self._in_threads = outer

    def alloc(self, s: Alloc) -> None:
        buffer, writer = s.buffer, self.writer
        name = writer.name(buffer.name)
        kind = C99.storage_type(buffer.dtype)
        count = self.element_count(buffer)
        if isinstance(count, int) and count * buffer.dtype.bytes <= STACK_BYTES:
            writer.line(f"{kind} {name}[{max(1, count)}] __attribute__((aligned({ALIGNMENT})));")
            with self.declared(buffer, name):
                self.stmt(s.body)
            return
        # aligned_alloc is newer than C99: some bytes more, and the first aligned one of them
        self.allocates = True
        whole = writer.name(f"{buffer.name}_all")
        writer.line(f"void *{whole} = malloc((size_t)({count}) * sizeof({kind}) + {ALIGNMENT});")
        mask = ALIGNMENT - 1
        writer.line(f"{kind} *{name} = ({kind} *)(((uintptr_t){whole} + {mask}) & ~(uintptr_t){mask});")
        with writer.block(f"if ({whole} == NULL)"):
            if self._openmp and self._in_parallel:
                writer.line("#pragma omp atomic write")
            writer.line("tw_failed = 1;")
        with writer.block("else"), self.declared(buffer, name):
            self.stmt(s.body)
        writer.line(f"free({whole});")

    def update(self, s: AtomicUpdate, at: str, value: str) -> None:
        dtype = self.place(s.buffer).buffer.dtype
        together = self._openmp and self._in_parallel
        if s.op == "add":
            if together:
                self.writer.line("#pragma omp atomic")
            kind = C99.storage_type(DTYPES[f"u{dtype.bits}"])
            self.writer.line(f"*({kind} *)&{at} += ({kind})({value});")
            return
        # C has atomic sums alone
        if together:
            self.writer.line(f"#pragma omp critical (tw_{s.op})")
        self.writer.line(f"{at} = {self.helpers.function(s.op, dtype)}({at}, {value});")

    def wait(self, s: Barrier) -> None:
        # the loops before it have ended
        if self._in_threads:
            raise ScheduleError(
                "a barrier inside of a thread loop cannot be said in C, where threads run one by one",
                hint="put thread loops side by side, or print the function for OpenCL or CUDA",
            )

    def execute(self, s: Exec) -> None:
        raise TargetError(
            f"C has no instruction {s.instr}",
            hint="lower the function for C, or schedule for a target without it, such as x86_avx2",
        )


def _has_lanes(s: Stmt, lane: str) -> bool:
    """Whether a vector loop's iterations store to elements of their own each, and nothing else counts."""
    if isinstance(s, Store):
        return all(any(lane in i.vars for i in w.indices) for w in s.writes)
    simple = isinstance(s, Seq) or (isinstance(s, For) and constant_extent(s) is not None)
    return simple and all(_has_lanes(child, lane) for child in stmt_children(s))
