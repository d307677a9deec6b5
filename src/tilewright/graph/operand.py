"""What operators' definitions compute with: operands of known shape, over tensors of `tilewright.lang`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from tilewright import lang
from tilewright.graph.model import Array, TensorType
from tilewright.ir import Size, dtype_of, most

#: The axes that a stage's function is given, and arithmetic on them.
Ix: TypeAlias = lang.IndexExpr
#: What may index an operand.
At: TypeAlias = lang.IndexExpr | int
Place: TypeAlias = tuple[At, ...]


class Readable(Protocol):
    """Anything whose elements are scalars: an operand, or an operand with a boundary condition."""

    def __getitem__(self, index: Place) -> lang.Scalar:
        """The element at the given index."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tensor of the language with its sizes as integers, or something that is read without being stored.

    A constant of one element becomes part of the expressions that read it; so does an operand that is read
    `through` to what defines it. `element` is that definition, where there is one, and `axes` the names
    of its indices.
    """

    shape: tuple[int, ...]
    dtype: str
    tensor: lang.Tensor | None
    element: Callable[..., lang.Scalar] | None = None
    axes: tuple[str, ...] | None = None

    def __getitem__(self, index: Place) -> lang.Scalar:
        if self.tensor is not None:
            return self.tensor[index]
        assert self.element is not None
        return self.element(*index)

    def through(self) -> Operand:
        """The operand read by computing its element again, without a stage of its own."""
        return self if self.element is None else replace(self, tensor=None)

    def permuted(self, order: Sequence[int], name: str) -> tuple[Operand, Operand]:
        """The operand stored with its axes in another order: as stored, and as read in the old order.

        Axis `a` of what is stored is axis `order[a]` of the operand, which must have an element.
        """
        element = self.element
        assert element is not None
        place = {axis: at for at, axis in enumerate(order)}

        def stored_element(*i: Ix) -> lang.Scalar:
            return element(*(i[place[axis]] for axis in range(len(order))))

        axes = None if self.axes is None else [self.axes[axis] for axis in order]
        stored = compute([self.shape[axis] for axis in order], stored_element, name, self.dtype, axes)
        read = replace(self, tensor=None, element=lambda *i: stored[tuple(i[axis] for axis in order)])
        return stored, read

    @property
    def type(self) -> TensorType:
        """The operand's type in a graph."""
        return TensorType(self.dtype, self.shape)


def literal(array: Array, dtype: str | None = None) -> Operand:
    """The operand of an array with one element, of a ``dtype`` where that is a size of a run."""
    value = array.reshape(()).item()
    if isinstance(value, Size):
        kind = dtype or "i64"
        return Operand(tuple(array.shape), kind, None, lambda *i: lang.to_scalar(value, kind))
    dtype = dtype_of(array.dtype).name
    return Operand(tuple(array.shape), dtype, None, lambda *i: lang.const(value, dtype))


def placeholder(type_: TensorType, name: str) -> Operand:
    """The operand that stands for an input of a program."""
    return Operand(type_.sizes, type_.dtype, lang.placeholder(type_.sizes, type_.dtype, name))


def compute(
    shape: Sequence[int],
    fn: Callable[..., lang.Scalar],
    name: str,
    dtype: str | None = None,
    axes: Sequence[str] | None = None,
) -> Operand:
    """A stage: the operand whose element at `i, j, ...` is `fn(i, j, ...)`.

    `name` is what the stage's name begins with, `dtype` states what `fn` gives (it converts nothing), `axes`
    names the stage's axes.
    """
    tensor = lang.compute(tuple(shape), fn, dtype=dtype, axes=axes, hint=name)
    names = None if axes is None else tuple(axes)
    return Operand(tuple(shape), tensor.dtype.name, tensor, fn, names)


def updated(
    base: Operand,
    extents: Sequence[int],
    step: Callable[..., lang.Write | Sequence[lang.Write]],
    name: str,
    free: Collection[int] = (),
    *,
    unordered: bool = False,
) -> Operand:
    """The operand after ordered writes: `step(target, i, j, ...)` gives one or several, done one after
    another.

    The steps run over `extents` in row-major order; `target` is the operand as it stands. `base` is a tensor.
    The axes `free` may run in any order: all that a step reads and writes of the target has their indices.
    With `unordered` so may the others: a step is one write that combines an element with a value.
    """
    assert base.tensor is not None

    def write(target: lang.Tensor, *i: Ix) -> lang.Write | Sequence[lang.Write]:
        return step(Operand(base.shape, base.dtype, target), *i)

    axes = [
        (lang.axis if at in free else lang.reduce_axis if unordered else lang.ordered_axis)(extent, f"s{at}")
        for at, extent in enumerate(extents)
    ]
    tensor = lang.update(base.tensor, axes, write, hint=name)
    return Operand(base.shape, base.dtype, tensor)


def scanned(
    shape: Sequence[int], axis: int, step: Callable[..., lang.Scalar], name: str, dtype: str
) -> Operand:
    """The operand whose element at `i, j, ...` is `step(made, i, j, ...)`, made in order along an axis.

    `made` is the operand itself, which may be read at smaller indices along the axis.
    """
    sizes = tuple(shape)

    def element(made: lang.Tensor, *i: Ix) -> lang.Scalar:
        return step(Operand(sizes, dtype, made), *i)

    return Operand(sizes, dtype, lang.scan(sizes, element, axis, dtype=dtype, hint=name))


def bounded(x: Operand, value: float | int | bool) -> Readable:
    """The operand with `value` outside its bounds."""
    if x.tensor is None:
        x = compute(x.shape, lambda *i: x[i], name="filled")
    assert x.tensor is not None
    return lang.boundary(x.tensor, value=value)


def index_value(at: At, dtype: str) -> lang.Scalar:
    """An index as a number."""
    return lang.to_scalar(at, dtype)


def clamped(at: lang.Scalar, size: int) -> Ix:
    """An index read from data, limited to an axis of that size."""
    return lang.to_index(lang.clamp(at, 0, most(size - 1, 0)))
