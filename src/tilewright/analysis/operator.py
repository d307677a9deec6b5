"""The complex operator of a task: its one product, the tensors around it, what their dimensions are to it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.analysis.readers import reads_in_place
from tilewright.analysis.updates import reduction_of
from tilewright.ir import Index, Load, Program, Stage, loads, stmt_loads, var


@dataclass(frozen=True, slots=True)
class Window:
    """A dimension read as ``stride*i ± dilation*r + c``: ``i`` of the result, ``r`` below ``taps``."""

    stride: int
    dilation: int
    taps: int

    @property
    def reach(self) -> int:
        """Elements that one window spans."""
        return self.dilation * (self.taps - 1) + 1


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the operator reads.

    For each of its dimensions the dimension of the result that it moves with (``None``: summed), and the
    window through which it is seen, if it is.
    """

    tensor: str
    result_dims: tuple[int | None, ...]
    windows: tuple[Window | None, ...]
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A convolution or product: ``stage``, its result's extents, and its operands.

    ``results`` are the tensors that hold the result or what is made of it element by element, and others that
    are read so there: all of one shape. ``source`` is the tensor of which ``data`` is a padded copy, if it is
    one. ``space`` and ``channel`` are the dimensions of the result along
    which only ``data``, and only ``weight``, moves (a depthwise channel: both do).
    """

    stage: str
    extents: tuple[int, ...]
    results: tuple[str, ...]
    data: Operand
    weight: Operand
    space: tuple[int, ...]
    channel: int
    source: str | None = None

    @property
    def windowed(self) -> bool:
        """Whether windows slide over the data, as in convolutions."""
        return any(w is not None for w in self.data.windows)


def find_operator(program: Program) -> Operator | None:
    """The operator of a program that has one; ``None`` where there is none, or several."""
    found = [op for stage in program.stages if (op := _operator(program, stage)) is not None]
    return found[0] if len(found) == 1 else None


def _operator(program: Program, stage: Stage) -> Operator | None:
    constant = all(it.lo == Index(0) and it.extent.is_const for it in stage.iters)
    update = reduction_of(stage)
    if update is None or update.op != "add" or not constant:
        return None
    write = update.write
    axes = {i.as_var(): d for d, i in enumerate(write.indices)}
    pars = [it.name for it in stage.iters if it.kind == "par"]
    operands = [ld for ld in dict.fromkeys(loads(update.term)) if ld.buffer != write.buffer]
    if sorted(axes, key=str) != sorted(pars) or len(operands) != 2:
        return None
    extent = {it.name: it.extent.as_int() for it in stage.iters}
    made = [_operand(program, ld, axes, extent) for ld in operands]
    if made[0] is None or made[1] is None:
        return None
    data, weight = _in_order(program, made[0], made[1])
    along_data, along_weight = ({d for d in o.result_dims if d is not None} for o in (data, weight))
    only_weight = sorted(along_weight - along_data)
    both = sorted(d for d in along_weight & along_data if _window_of(data, d) is None)
    channels = only_weight or both
    if not channels:
        return None
    space = [d for d in sorted(along_data - along_weight) if extent[pars_of(axes, d)] > 1]
    windowed = [d for d in sorted(along_data) if _window_of(data, d) is not None]
    if windowed:
        # of 1x1 taps along one dimension the others tell which are images'
        space = [d for d in space if d >= min(windowed)]
    elif len(space) > 1 and space[0] == 0:
        space = space[1:]
    extents = tuple(extent[pars_of(axes, d)] for d in range(len(write.indices)))
    results, source = _results(program, write.buffer), _source(program, data.tensor)
    return Operator(stage.name, extents, results, data, weight, tuple(space), channels[-1], source)


def pars_of(axes: dict[str | None, int], dim: int) -> str:
    """The iterator along a dimension of the result."""
    return next(name for name, d in axes.items() if d == dim and name is not None)


def _operand(
    program: Program, ld: Load, axes: dict[str | None, int], extent: dict[str, int]
) -> Operand | None:
    dims: list[int | None] = []
    windows: list[Window | None] = []
    for i in ld.indices:
        own = [v for v in i.vars if v in axes]
        taps = [v for v in i.vars if v not in axes and extent.get(v, 1) > 1]
        if len(own) > 1 or len(taps) > 1:
            return None
        dims.append(axes[own[0]] if own else None)
        linear = set(i.vars) == {atom.name for atom, _ in i.terms if hasattr(atom, "name")}
        seen = bool(own and linear and (taps or i != var(own[0])))
        stride = i.coefficient(own[0]) if own and linear else 1
        # taps are counted backwards in transposed convolutions
        dilation, count = (abs(i.coefficient(taps[0])), extent[taps[0]]) if taps and linear else (1, 1)
        if seen and (stride < 1 or dilation < 1):
            return None
        windows.append(Window(stride, dilation, count) if seen else None)
    shape = program.buffer(ld.buffer).shape
    if not all(n.is_const for n in shape):
        return None
    return Operand(ld.buffer, tuple(dims), tuple(windows), tuple(n.as_int() for n in shape))


def _window_of(operand: Operand, dim: int) -> Window | None:
    for d, window in zip(operand.result_dims, operand.windows, strict=True):
        if d == dim:
            return window
    return None


def _in_order(program: Program, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Data and weights: windows are over data, weights are constants, or else the second operand."""
    if any(b.windows) and not any(a.windows):
        return b, a
    if any(a.windows) and not any(b.windows):
        return a, b
    constants = {x.name for x in program.inputs if x.scope == "const"}
    if a.tensor in constants and b.tensor not in constants:
        return b, a
    if a.tensor not in constants and b.tensor not in constants and prod(a.extents) < prod(b.extents):
        # of two tensors the result's rows are those of the first dimension's
        first = [min((d for d in o.result_dims if d is not None), default=0) for o in (a, b)]
        return (a, b) if first[0] <= first[1] else (b, a)
    return a, b


def _source(program: Program, name: str) -> str | None:
    """What a padded tensor is a copy of: its one producer moves elements along the same dimensions."""
    makers = program.producers(name)
    if len(makers) != 1 or makers[0].is_reduction:
        return None
    reads = list(dict.fromkeys(stmt_loads(makers[0].body)))
    its = [it.name for it in makers[0].iters]
    if len(reads) != 1 or len(reads[0].indices) != len(its):
        return None
    same = all(i - i.const == var(it) for i, it in zip(reads[0].indices, its, strict=True))
    return reads[0].buffer if same else None


def _results(program: Program, name: str) -> tuple[str, ...]:
    """The tensors of the result's shape that hold it, or meet it element by element."""
    shape, found, todo = program.buffer(name).shape, [name], [name]
    while todo:
        current = todo.pop()
        for reader in program.consumers(current):
            if reader.is_reduction or not reads_in_place(reader, current):
                continue
            others = [ld.buffer for ld in stmt_loads(reader.body)]
            for each in (*reader.writes, *others):
                same = program.buffer(each).shape == shape
                if same and each not in found and (each in reader.writes or reads_in_place(reader, each)):
                    found.append(each)
                    todo += [each] if each in reader.writes else []
    return tuple(found)
