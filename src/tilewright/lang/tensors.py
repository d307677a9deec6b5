"""Tensors: placeholders and the results of stages, reading them, and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright import ir
from tilewright.ir import DType, Index, Stmt
from tilewright.lang.axes import check_name, extent_of
from tilewright.lang.conversions import dtype_from, index_of
from tilewright.lang.source import Place, here, problem
from tilewright.lang.values import BoundName, IndexExpr, IndexLike, Rest, Scalar, ScalarParam


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A stage before names are final: buffers are :class:`TensorName`, iterators ``AxisName``.

    ``base`` is the tensor that an ordered update starts from, ``outputs`` the tensors it defines.
    """

    iters: tuple[ir.Iter, ...]
    body: Stmt
    init: Stmt | None
    source: Place
    base: Tensor | None = None
    outputs: list[Tensor] = field(default_factory=list)


class TensorName(str):
    """The unique name of a tensor inside expressions; carries the tensor and the place of the access."""

    __slots__ = ("place", "tensor")

    tensor: Tensor
    place: Place


class Tensor:
    """A dense array of a program: an input (:func:`placeholder`) or what :func:`compute` defines.

    ``A[i, j]`` is its element, a :class:`Scalar`; indices are quasi-affine or clamped data (:func:`clamp`).
    """

    __slots__ = (
        "bounds", "definition", "dtype", "extents", "hint", "name", "origin", "place", "strides", "undefined",
    )  # fmt: skip

    def __init__(
        self,
        shape: tuple[Index, ...],
        dtype: DType,
        name: str | None,
        hint: str,
        definition: Definition | None,
        place: Place,
        origin: tuple[Index, ...] | None = None,
        *,
        bounds: Mapping[int, tuple[int, int]] = MappingProxyType({}),
        strides: tuple[int, ...] | None = None,
        undefined: bool = False,
    ) -> None:
        self.extents = shape
        self.strides = strides
        self.bounds = bounds
        self.undefined = undefined
        self.origin = (ir.ZERO,) * len(shape) if origin is None else origin
        self.dtype = dtype
        self.name = name
        self.hint = hint
        self.definition = definition
        self.place = place

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.extents)

    @property
    def inferred(self) -> bool:
        """Whether ``lang.program`` infers which elements there are, from those that are read."""
        return any(isinstance(v, BoundName) for x in self.origin for v in x.vars)

    @property
    def shape(self) -> tuple[IndexExpr, ...]:
        """Number of elements in each dimension; ``ProgramError`` where that is inferred later."""
        if self.inferred:
            raise problem(
                f"the region of {self.label} is inferred when the program is made: it has no shape yet",
                "give sizes as numbers or lang.param; lang.compute has a shape",
            )
        return tuple(IndexExpr(s) for s in self.extents)

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or f"an unnamed tensor ({self.hint})"

    def ref(self, at: Place | None = None) -> TensorName:
        """Its unique name in expressions."""
        name = TensorName(f"{self.name or self.hint}@{id(self):x}")
        name.tensor = self
        name.place = at or self.place
        return name

    def __getitem__(self, key: object) -> Scalar:
        indices = self.indices(key)
        return Scalar(ir.Load(self.ref(here()), indices, self.dtype))

    def indices(self, key: object) -> tuple[Index, ...]:
        """The indices of an access, one a dimension; ``ProgramError`` for a wrong number or kind."""
        keys = key if isinstance(key, tuple) else (key,)
        if keys and isinstance(keys[-1], Rest):
            keys = (*keys[:-1], *keys[-1].indices(self.rank - len(keys) + 1))
        if len(keys) != self.rank:
            raise problem(
                f"{self.label} has {self.rank} dimensions and is indexed with {len(keys)}",
                "one index a dimension" if self.inferred else f"its shape is ({self._sizes()})",
            )
        return tuple(
            index_of(k, f"index {n} of {self.label}", self.bounds.get(n)) for n, k in enumerate(keys)
        )

    def _as_number(self, *_: object) -> Any:
        raise problem(f"{self.label} is a tensor, not a number", "index its elements: A[i, j]")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _as_number
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = (
        _as_number
    )
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = (
        _as_number
    )
    __neg__ = __abs__ = __invert__ = __float__ = __int__ = __array_ufunc__ = _as_number

    def __iter__(self) -> Iterator[Any]:
        raise problem(f"{self.label} cannot be iterated over", "index its elements: A[i, j]")

    def __len__(self) -> int:
        """The first extent, as of arrays; ``ProgramError`` where it is not a number."""
        if not self.rank:
            raise problem(f"{self.label} is a scalar: it has no len", "its rank is 0")
        if self.inferred or not self.extents[0].is_const:
            raise problem(
                f"len of {self.label}: its first extent is no number yet",
                "take shape[0] of a symbolic size; an inferred one is known when the program is made",
            )
        return self.extents[0].as_int()

    def __bool__(self) -> bool:
        return True  # not whether it has elements, which may be inferred

    def __repr__(self) -> str:
        return f"Tensor({self.label}, ({'inferred' if self.inferred else self._sizes()}), {self.dtype})"

    def _sizes(self) -> str:
        return ", ".join(map(str, self.extents))


def placeholder(
    shape: tuple[IndexLike, ...] | IndexLike,
    dtype: DType | str | np.dtype[Any] = "f32",
    name: str | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """An input of the program; extents are integers or symbolic sizes (:func:`param`).

    ``strides`` are the elements in memory from one index of a dimension to the next, where the input is no
    dense array: a part of an image, interleaved colours. Arrays that lie so are read where they are.

    Raises ProgramError for strides of another rank, of a symbolic shape, and those by which elements overlap.
    """
    extents = shape_of(shape)
    checked = None if name is None else check_name(name, "tensor")
    steps = None if strides is None else _strides(extents, tuple(strides))
    return Tensor(extents, dtype_from(dtype), checked, "x", None, here(), strides=steps)


def _strides(extents: tuple[Index, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    shown = ", ".join(map(str, strides))
    if len(strides) != len(extents) or not all(n.is_const for n in extents):
        sizes = ", ".join(map(str, extents))
        raise problem(
            f"strides ({shown}) of a shape ({sizes})", "one stride a dimension, of constant extents"
        )
    reached = 0
    for step, n in sorted(zip(strides, (n.as_int() for n in extents), strict=True)):
        if n > 1 and step <= reached:
            raise problem(
                f"by the strides ({shown}) elements overlap", "each is larger than what lies inside"
            )
        reached += step * (n - 1) if n > 1 else 0
    return strides


def undef(shape: tuple[IndexLike, ...] | IndexLike, dtype: DType | str | np.dtype[Any] = "f32") -> Tensor:
    """A tensor without contents, for :func:`update` to start from: nothing is written before its changes.

    Elements that no update writes are not defined; of an output they are what its memory held.
    """
    return Tensor(shape_of(shape), dtype_from(dtype), None, "undefined", None, here(), undefined=True)


def shape_of(shape: object) -> tuple[Index, ...]:
    """A shape as indices; a single extent is a shape of one dimension. Raises ProgramError for no shape."""
    parts = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(parts) > ir.MAX_RANK:
        raise problem(f"a shape of {len(parts)} dimensions", f"a tensor has at most {ir.MAX_RANK}")
    return tuple(extent_of(s, f"extent {n} of the shape") for n, s in enumerate(parts))


def param(name: str, lo: int = 1, hi: int = 1 << 31, multiple_of: int = 1) -> IndexExpr:
    """A symbolic size in ``[lo, hi]`` that is a multiple of ``multiple_of``; checked at each call.

    Raises ProgramError for bounds between which there is no such number.
    """
    check_name(name, "symbolic size")
    if not 0 <= lo <= hi or multiple_of < 1:
        raise problem(f"symbolic size {name}: no values in [{lo}, {hi}] with multiple_of={multiple_of}")
    return IndexExpr(ir.index(ir.Param(name, lo, hi, multiple_of)))


def scalar(name: str, dtype: DType | str = "f32") -> ScalarParam:
    """A scalar parameter of the program, passed as a 0-d array; list it among the program's inputs."""
    tensor = placeholder((), dtype, name)
    return ScalarParam(tensor[()].expr)
