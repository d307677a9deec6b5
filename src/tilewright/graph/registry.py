"""The operator registry: one definition gives an operator's shape rule, its computation and its properties.

A definition is a function under `ops/`, registered by a decorator:

    @operator("Relu", kind=Kind.ELEMENTWISE)
    def relu(ctx: Context, x: Operand) -> Operand:
        return compute(x.shape, lambda *i: lang.relu(x[i]), name="relu")

It receives the node's attributes and what is known when the model is compiled (`Context`), and its inputs as
operands; it returns operands made by `compute`. Their shapes and dtypes are the shape rule, what they compute
is the computation, so the two never disagree. Where an operator cannot be compiled with the given attributes,
the definition raises `ctx.unsupported`; where the model is wrong, it calls `ctx.require`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from tilewright.graph.model import Array, Attribute, Node, TensorType, type_of
from tilewright.graph.operand import Operand, literal, placeholder
from tilewright.ir import RelationError, Size, dtype_of, index_of, int_lower, int_upper, is_open
from tilewright.support import (
    Catalog,
    InternalError,
    ModelError,
    NodeLocation,
    ResourceError,
    UnsupportedOperatorError,
    format_bytes,
    quoted,
)

#: The largest tensor that is allowed unless a caller says otherwise: 8 GiB.
DEFAULT_MAX_BYTES: Final = 1 << 33


@dataclass(frozen=True, slots=True)
class AxesAsked:
    """Axes that an input names: of how many, to which those named are added if they are ``made``.

    Whether their order matters.
    """

    rank: int
    ordered: bool = False
    made: bool = False


class NotStaticError(UnsupportedOperatorError):
    """A node needs the elements of `value` when the model is compiled, and they are not known."""

    def __init__(self, at: int, value: str, axes: AxesAsked | None = None) -> None:
        super().__init__(f"its input {at} ({quoted(value)}) must be known when the model is compiled")
        self.value, self.axes = value, axes


class UndeterminedError(UnsupportedOperatorError):
    """Nodes cannot be compiled, some because they depend on what model `inputs` hold at run time.

    The model can be compiled for fixed values of those inputs.
    """

    def __init__(self, nodes: Sequence[tuple[NodeLocation, str]], inputs: Sequence[str]) -> None:
        names = ", ".join(quoted(name) for name in inputs)
        super().__init__(
            UnsupportedOperatorError.of(nodes).what,
            nodes=nodes,
            hint=f"compile for fixed values of {names}: constants={{name: array}}; "
            "dynamic={} lets data say sizes",
        )
        self.inputs = tuple(inputs)


class Kind(Enum):
    """What fusion may know about an operator."""

    ELEMENTWISE = "elementwise"
    """An output element is a function of the input elements at its place, sizes of one broadcast."""
    VIEW = "view"
    """The output is the first input's buffer under another shape."""
    MOVEMENT = "movement"
    """An output element is an element of an input, chosen by index arithmetic, or a constant."""
    GATHER = "gather"
    """Like MOVEMENT, but the place depends on data."""
    REDUCTION = "reduction"
    """Combines elements along some axes, rows independent of one another: reductions, softmax, layer norm."""
    CONTRACTION = "contraction"
    """Sums of products of elements of two inputs."""
    WINDOW = "window"
    """Combines the elements of a sliding window."""
    OPAQUE = "opaque"
    """Compiled alone."""
    STATIC = "static"
    """Evaluated when the model is compiled; never reaches a kernel."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """What the elements of a node's input may be, where they are taken as places: low <= element < high.

    They are the elements at `first`, `first + stride` ... in row-major order.
    """

    input: int
    low: int
    high: int
    first: int = 0
    stride: int = 1

    def outside(self, array: Array) -> str:
        """What is wrong with an array of that input; nothing if all is well."""
        taken = array.reshape(-1)[self.first :: self.stride]
        if isinstance(self.high, Size):
            # what is larger may be known of a size of a run, one number at a time
            outside = np.array([not self.low <= int(n) < self.high for n in taken], bool)
        else:
            outside = (taken < self.low) | (taken >= self.high)
        wrong = np.flatnonzero(outside)
        if not wrong.size:
            return ""
        place = np.unravel_index(self.first + int(wrong[0]) * self.stride, array.shape or (1,))
        where = f" at {[int(i) for i in place]}" if array.ndim else ""
        allowed = f"from {self.low} to {self.high - 1}" if self.low < self.high else "nothing"
        return f"holds {int(taken[wrong[0]])}{where}, which is out of range ({allowed})"


Results: TypeAlias = Operand | Sequence[Operand]
Builder: TypeAlias = Callable[..., Results]
Evaluator: TypeAlias = "Callable[[Context], Sequence[Array]]"
_B = TypeVar("_B", bound=Builder)
_E = TypeVar("_E", bound="Evaluator")
_A = TypeVar("_A")


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """A registered operator: how to build its computation, or how to evaluate it when compiling.

    ``finite`` says that finite operands have finite results, whatever they are: then channels that a pass
    fills up with zeros harm none of the others.
    """

    name: str
    domain: str
    kind: Kind
    build: Builder | None = None
    evaluate: Evaluator | None = None
    static: tuple[int, ...] = ()
    min_inputs: int = 0
    max_inputs: int | None = None
    finite: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Domain and name."""
        return (self.domain, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a definition may ask about the node it builds.

    `types` and `values` belong to the node's inputs, in order; None for an input that is absent, and, in
    `values`, for one whose elements are not known when compiling. `tables` collects the constants that the
    definition itself makes, by names numbered from `table_base`; `ranges` what it asks of elements that are
    places. No tensor may have more than `max_bytes`.
    """

    node: Node
    types: tuple[TensorType | None, ...]
    values: tuple[Array | None, ...]
    max_bytes: int = DEFAULT_MAX_BYTES
    table_base: int = 0
    tables: dict[str, tuple[Array, Operand]] = field(default_factory=dict)
    ranges: list[IndexRange] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The version of the operator set that the model is written in."""
        return self.node.version

    def unsupported(self, reason: str) -> UnsupportedOperatorError:
        """The error to raise where this node cannot be compiled. `reason` completes "node ...:"."""
        return UnsupportedOperatorError(reason)

    def require(self, condition: bool, problem: str) -> None:
        """Raise ModelError, naming the node, unless the condition holds."""
        if not condition:
            raise ModelError(problem, where=self.node.location)

    def agree(self, a: int, b: int) -> bool:
        """Whether two sizes are equal, as the node needs them. Raises RelationError where runs show it."""
        if a == b:
            return True
        difference = index_of(a) - index_of(b)
        low, high = int_lower(difference, {}), int_upper(difference, {})
        if difference.terms and (low is None or low <= 0) and (high is None or high >= 0):
            raise RelationError(difference, (a, b))
        return False

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.node.attributes

    def wants(self, output: int) -> bool:
        """Whether anything may read that output."""
        return output < len(self.node.outputs) and bool(self.node.outputs[output])

    def has_input(self, at: int) -> bool:
        """Whether that optional input is present."""
        return at < len(self.types) and self.types[at] is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute. Raises ModelError where it is absent without a default, or something else."""
        return self._attribute(name, default, lambda value: isinstance(value, int), "an integer")

    def flag(self, name: str, default: bool) -> bool:
        """An integer attribute that is 0 or 1. Raises ModelError for any other."""
        found = self.integer(name, int(default))
        self.require(found in (0, 1), f"the attribute {name} is {found}; it must be 0 or 1")
        return found == 1

    def real(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        return self._attribute(name, default, lambda value: isinstance(value, float), "a float")

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        return self._attribute(name, default, lambda value: isinstance(value, str), "a string")

    def choice(self, name: str, known: Sequence[str], default: str | None = None) -> str:
        """A string attribute that is one of those known. Raises ModelError for any other."""
        found = self.text(name, default)
        named = ", ".join(known)
        self.require(found in known, f"the attribute {name} is {quoted(found)}; it must be one of {named}")
        return found

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        fallback = None if default is None else tuple(default)
        return self._attribute(name, fallback, lambda v: _all_of(v, int), "a list of integers")

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """An attribute that is a list of floats."""
        fallback = None if default is None else tuple(default)
        return self._attribute(name, fallback, lambda v: _all_of(v, float), "a list of floats")

    def tensor(self, name: str) -> Array:
        """An attribute that is a tensor."""
        found = self.node.attributes.get(name)
        self.require(isinstance(found, np.ndarray), f"the attribute {name} must be a tensor")
        assert isinstance(found, np.ndarray)
        return found

    def _attribute(self, name: str, default: _A | None, fits: Callable[[Attribute], bool], what: str) -> _A:
        found = self.node.attributes.get(name)
        if found is None:
            self.require(default is not None, f"the attribute {name} is missing")
            assert default is not None
            return default
        self.require(fits(found), f"the attribute {name} must be {what}")
        return found  # type: ignore[return-value]  # `fits` has just checked it

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """An attribute that names an axis, counted from the front. Raises ModelError for one out of range."""
        return self.normal_axis(self.integer(name, default), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        """The axis counted from the front. Raises ModelError where there is no such axis."""
        self.require(-rank <= axis < rank, f"axis {axis} is out of range for rank {rank}")
        return axis % rank if rank else 0

    def static(self, at: int) -> Array:
        """The elements of an input that must be known when compiling. Refuses the node where they are not."""
        value = self.values[at] if at < len(self.values) else None
        if value is None and self.has_input(at) and self.type(at).elements == 0:
            value = np.zeros(self.type(at).sizes, dtype_of(self.type(at).dtype).numpy)
        if value is None:
            raise NotStaticError(at, self.node.inputs[at] if at < len(self.node.inputs) else "")
        return value

    def static_axes(self, at: int, asked: AxesAsked) -> tuple[int, ...]:
        """A static input as axes; where a run names them, there may be a graph for each that they may be."""
        try:
            return self.static_ints(at)
        except NotStaticError as error:
            raise NotStaticError(at, error.value, asked) from None

    def axes_from(self, name: str, at: int, asked: AxesAsked) -> tuple[int, ...] | None:
        """Axes that are an attribute in older operator sets, an input in newer ones; None if absent."""
        if self.has(name):
            return self.integers(name)
        return self.static_axes(at, asked) if self.has_input(at) else None

    def static_int(self, at: int) -> int:
        """A static input of one element as an integer."""
        value = self.static(at)
        self.require(value.size == 1, f"its input {at} must have one element")
        return integer_of(value.reshape(()).item())

    def static_ints(self, at: int) -> tuple[int, ...]:
        """A static input as integers."""
        return tuple(integer_of(value) for value in self.static(at).flat)

    def ints_from(self, name: str, at: int) -> tuple[int, ...] | None:
        """Integers that are an attribute in older operator sets, an input in newer ones; None if absent."""
        if self.has(name):
            return self.integers(name)
        return self.static_ints(at) if self.has_input(at) else None

    def type(self, at: int) -> TensorType:
        """The type of an input that must be present."""
        found = self.types[at] if at < len(self.types) else None
        if found is None:
            raise ModelError(f"its input {at} is missing", where=self.node.location)
        return found

    def limit_bytes(self, count: int, what: str = "its output") -> None:
        """Raise ResourceError, naming the node, for a tensor of more bytes than are allowed."""
        if not is_open(count) and count > self.max_bytes:
            raise ResourceError(
                f"{what} would take {format_bytes(count)}",
                where=self.node.location,
                hint=f"one tensor may have at most {format_bytes(self.max_bytes)}",
            )

    def limit_elements(self, shape: Sequence[int], dtype: str) -> None:
        """The same for a tensor of a shape, before anything of that size is computed."""
        self.limit_bytes(math.prod(shape) * dtype_of(dtype).bytes)

    def limit_indices(self, at: int, low: int, high: int, first: int = 0, stride: int = 1) -> None:
        """Ask that elements of input `at` are in [low, high): checked in each run, known ones when compiling.

        Those are meant that lie at `first`, `first + stride` ... in row-major order.
        """
        self.ranges.append(IndexRange(at, low, high, first, stride))

    def table(self, array: Array, name: str) -> Operand:
        """A constant tensor made by the definition, such as an index table."""
        if array.size == 1:
            return literal(array)
        unique = f"{name}_{self.table_base + len(self.tables)}"
        operand = placeholder(type_of(array), unique)
        self.tables[unique] = (array, operand)
        return operand


def integer_of(value: float | int) -> int:
    """An element of an array as an integer; a size of a run stays one."""
    return value if isinstance(value, Size) else int(value)


def _all_of(value: Attribute, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) for item in value)


def arity(build: Callable[..., object]) -> tuple[int, int | None]:
    """How many inputs a definition takes at least and at most (None: any number), from its signature."""
    parameters = list(inspect.signature(build).parameters.values())[1:]
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    plain = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    needed = sum(p.default is p.empty for p in plain)
    return needed, None if many else len(plain)


def _module(named: Any) -> Any:
    return named


class Registry(Mapping[tuple[str, str], Operator]):
    """The operators by (domain, name): this package's, and those of modules that others name.

    These are the entry points in the group ``tilewright.operators``, which are imported at the first look.
    Read-only from then on.
    """

    def __init__(self) -> None:
        self._operators: dict[tuple[str, str], Operator] = {}
        self._modules = Catalog[str, Any]("operators", (), of=_module, key=attrgetter("__name__"))

    @cached_property
    def _known(self) -> dict[tuple[str, str], Operator]:
        # importing them registers what they define
        tuple(self._modules)
        return self._operators

    def __getitem__(self, key: tuple[str, str]) -> Operator:
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def operator(
        self,
        *names: str,
        kind: Kind,
        static: Sequence[int] = (),
        domain: str = "",
        finite: bool | Collection[str] = False,
    ) -> Callable[[_B], _B]:
        """Register the decorated definition under one or more names.

        `static` lists the inputs whose elements must be known when compiling; `finite` says which of the
        names map finite numbers to finite ones: all, none, or these.
        """

        def register(build: _B) -> _B:
            least, most = arity(build)
            for name in names:
                sure = finite if isinstance(finite, bool) else name in finite
                self._add(Operator(name, domain, kind, build, None, tuple(static), least, most, sure))
            return build

        return register

    def static_operator(
        self, *names: str, static: Sequence[int] = (), domain: str = ""
    ) -> Callable[[_E], _E]:
        """Register an operator that is evaluated when compiling, from shapes and from static inputs."""

        def register(evaluate: _E) -> _E:
            for name in names:
                self._add(Operator(name, domain, Kind.STATIC, evaluate=evaluate, static=tuple(static)))
            return evaluate

        return register

    def _add(self, entry: Operator) -> None:
        if entry.key in self._operators:
            raise InternalError(f"the operator {entry.name} is defined twice")
        self._operators[entry.key] = entry


REGISTRY: Final = Registry()
operator = REGISTRY.operator
static_operator = REGISTRY.static_operator

#: The domain of the operators that onnxruntime adds to the standard ones (its `ContribOperators.md`).
MICROSOFT: Final = "com.microsoft"

#: The domain of the standard's operators on tables: trees, linear models, encoders.
ML: Final = "ai.onnx.ml"

#: The domain of operators that only decompositions and passes make.
OWN: Final = "tilewright"

#: Other names of the standard domain.
_STANDARD: Final = MappingProxyType({"ai.onnx": ""})

#: Operators that inference resolves by itself.
_CONTROL: Final = frozenset(
    {
        *(("", op) for op in ("If", "Scan", "Loop")),
        *(
            ("", f"Sequence{what}")
            for what in ("Construct", "Empty", "Insert", "Erase", "At", "Length", "Map")
        ),
        *(("", op) for op in ("SplitToSequence", "ConcatFromSequence")),
        *(("", f"Optional{what}") for what in ("", "GetElement", "HasElement")),
    }
)


def standard_domain(domain: str) -> str:
    """A domain under the one name that it has here."""
    return _STANDARD.get(domain, domain)


def find_operator(node: Node) -> Operator | None:
    """The definition of a node's operator, or None."""
    return REGISTRY.get((standard_domain(node.domain), node.op))


#: Why operators that models do have are not supported.
_REASONS: Final = MappingProxyType(
    {
        "ImageDecoder": "images are decoded before the model is run: give it pixels",
        "Multinomial": "it draws numbers: give them to the model as an input",
    }
)


def unsupported(op: str) -> str:
    """Why there is no definition of an operator, as far as there is more to say than that."""
    reason = _REASONS.get(op)
    return f"the operator is not supported: {reason}" if reason else "the operator is not supported"


def is_supported(domain: str, op: str) -> bool:
    """Whether there is a definition of that operator (some of its attributes may still be refused)."""
    return (standard_domain(domain), op) in REGISTRY or (domain, op) in _CONTROL


def build(entry: Operator, context: Context, operands: Sequence[Operand | None]) -> tuple[Operand, ...]:
    """Run a definition: one tensor for each output of the node, optional ones at the end perhaps missing.

    Raises UnsupportedOperatorError or ModelError as the definition decides.
    """
    if entry.build is None:
        raise InternalError(f"{entry.name} has no computation")
    made = entry.build(context, *operands)
    return tuple(made) if isinstance(made, Sequence) else (made,)
