"""Open sizes: what callers and files say of them, and the symbols that they are when a model is imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.frontend import OpenSource, Shapes
from tilewright.graph import TensorType
from tilewright.ir import (
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Param,
    Size,
    as_size,
    base_symbols,
    bind_params,
    exact_quotient,
    floordiv,
    imax,
    imin,
    index,
    index_of,
    least,
    mod,
    most,
    times,
)
from tilewright.runtime import AffineDim, SizeRange
from tilewright.support import InputError, InternalError, known_names, quoted, whole_number

GivenSizes: TypeAlias = Mapping[str, tuple[int, int] | tuple[int, int, int] | str]
"""What a caller says of each open size: its least and largest value, its steps; or an expression."""

#: The sizes that a name of the file may have where nobody says so.
UNSAID: Final = SizeRange(1, 4096)


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The open sizes of a model: the ``ranges`` of those that runs show by name, and what others are.

    ``derived`` are expressions of those names, by the text that stands for them in the file, which has the
    ``dims``. ``equal`` says of sizes that runs show as which expression of others the model needs them.
    """

    ranges: Mapping[str, SizeRange]
    dims: tuple[str, ...]
    derived: Mapping[str, ast.expr] = field(default_factory=lambda: MappingProxyType({}))
    equal: Mapping[str, Index] = field(default_factory=lambda: MappingProxyType({}))
    said: Mapping[str, Index] = field(default_factory=lambda: MappingProxyType({}))
    """What the model needs sizes to be that data says, by their symbols."""

    @property
    def symbols(self) -> dict[str, int]:
        """The symbol of each size, in order, and the step that it counts."""
        return {symbol_of(at): known.step for at, known in enumerate(self.ranges.values())}

    def names(self) -> dict[str, str]:
        """The name of each symbol."""
        return {symbol_of(at): name for at, name in enumerate(self.ranges)}

    def values(self) -> dict[str, int]:
        """What each name, and each expression, of the file is: a size of a run, or a number."""
        own = {}
        for at, (name, known) in enumerate(self.ranges.items()):
            symbol = index(Param(symbol_of(at), -(-known.least // known.step), known.largest // known.step))
            own[name] = as_size(symbol * known.step) if known.least < known.largest else known.least
        found = {name: as_size(self._settled(self.equal.get(name, index_of(n)))) for name, n in own.items()}
        return found | {text: _evaluated(tree, found) for text, tree in self.derived.items()}

    def of_file(self) -> dict[str, int]:
        """What each open dimension of the file is."""
        values = self.values()
        return {dim: values[dim] for dim in self.dims}

    def _settled(self, x: Index) -> Index:
        """An expression in which no size that is another's expression occurs."""
        names = self.names()
        replaced = {s: e for s, name in names.items() if (e := self.equal.get(name)) is not None}
        for symbol, expression in replaced.items():
            step = self.ranges[names[symbol]].step
            if symbol in base_symbols(x):
                part = exact_quotient(expression, index_of(step))
                assert part is not None  # that was seen when it was solved
                x = _with(x, symbol, self._settled(part))
        return x

    def with_equal(self, difference: Index) -> OpenSizes | None:
        """The sizes where a difference of expressions is 0; ``None`` where no size can be told by it."""
        names = self.names()
        for atom, c in sorted(difference.terms, key=lambda term: term[0].key, reverse=True):
            if not isinstance(atom, Param) or atom.factors:
                continue
            rest = difference - index(atom) * c
            value = exact_quotient(rest, index_of(-c))
            if value is None or atom.name in base_symbols(rest):
                continue
            if atom.name not in names:
                # only what is compared with a number is checked in each run
                if value.terms:
                    continue
                return replace(self, said={**self.said, atom.name: value})
            if names[atom.name] in self.equal:
                continue
            name = names[atom.name]
            return replace(self, equal={**self.equal, name: value * self.ranges[name].step})
        return None

    def parted(self, difference: Index, *, equal: bool = False) -> tuple[OpenSizes, ...]:
        """The sizes where a difference is negative, and the others; or those where it is 0 alone.

        Nothing where these are no ranges of one size.
        """
        symbols = base_symbols(difference)
        if len(symbols) != 1 or not symbols.keys() <= self.names().keys():
            return ()
        ((symbol, p),) = symbols.items()

        def holds(n: int) -> bool:
            value = bind_params(difference, {symbol: n}).as_int()
            return value == 0 if equal else value < 0

        low, high = p.lo, p.hi
        first = holds(low)
        if first == holds(high):
            return ()
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) == first else (low, middle)
        name = self.names()[symbol]
        known = self.ranges[name]
        below, above = replace(known, largest=low * known.step), replace(known, least=high * known.step)
        parts = tuple(replace(self, ranges={**self.ranges, name: part}) for part in (below, above))
        return parts if not equal else parts[:1] if first else parts[1:]

    def shows(self, dim: int | str, values: Mapping[str, int]) -> int | str | AffineDim:
        """A dimension of an input as runs show it. Raises InputError where it is not affine in sizes."""
        if isinstance(dim, int) or dim in self.ranges:
            return dim
        shown = self._affine(values[dim])
        if shown is None:
            raise InputError(
                f"the size {quoted(dim)} is no sum of open sizes and their multiples",
                hint=f"leave it open by itself: dynamic={{{dim!r}: (1, 4096)}}",
            )
        return shown

    def told(self, value: int) -> int | str | AffineDim:
        """A dimension of an output: what runs show of it, the text of an expression, or "?"."""
        if not isinstance(value, Size):
            return value
        shown, names = self._affine(value), self.names()
        if isinstance(shown, AffineDim) and (shown.terms, shown.offset) == (((shown.terms[0][0], 1),), 0):
            return shown.terms[0][0]
        known = base_symbols(value.index).keys() <= names.keys()
        return shown if shown is not None else self.shown(value.index) if known else "?"

    def _affine(self, value: int) -> int | AffineDim | None:
        if not isinstance(value, Size):
            return value
        names, terms = self.names(), []
        for atom, c in value.index.terms:
            if not isinstance(atom, Param) or atom.name not in names:
                return None
            name = names[atom.name]
            if c % self.ranges[name].step:
                return None
            terms.append((name, c // self.ranges[name].step))
        return AffineDim(tuple(terms), value.index.const)

    def shown(self, x: Index) -> str:
        """An expression with the sizes' own names, for messages."""
        text = str(x)
        for symbol, name in reversed(self.names().items()):
            step = self.ranges[name].step
            text = text.replace(symbol, quoted(name) if step == 1 else f"({quoted(name)}/{step})")
        return text


def symbol_of(at: int) -> str:
    """The identifier of a size, whose name in a model may be anything."""
    return f"size{at}"


def read_sizes(
    dynamic: object, same: object, model: OpenSource, shapes: Shapes, constants: Iterable[str] = ()
) -> OpenSizes:
    """The open sizes that ``shapes`` does not settle: of those that a caller leaves out a wide range.

    What the file writes as an expression of names is one of them. Raises InputError for names that the model
    does not have, for what is no range and no expression, and for relations that go round in circles.
    """
    if not isinstance(dynamic, Mapping):
        raise InputError("dynamic= must map names to ranges", hint='dynamic={"batch": (1, 64)}')
    if not isinstance(same, Mapping):
        raise InputError("same= must map names to names", hint='same={"batch_of_mask": "batch"}')
    settled = {*shapes, *constants}
    dims = dict.fromkeys(
        dim
        for name, type_ in model.inputs().items()
        for dim in type_.shape
        if isinstance(dim, str) and not {dim, name} & settled
    )
    trees = {dim: tree for dim in dims if dim not in dynamic and (tree := _parsed(dim)) is not None}
    names = dict.fromkeys(name for dim in dims for name in (_names(trees[dim]) if dim in trees else [dim]))
    ranges: dict[str, SizeRange] = {}
    for name, given in {**dynamic, **same}.items():
        if name not in names:
            hint = known_names(str(name), sorted(names), "its open sizes")
            raise InputError(f"the model has no open size {quoted(str(name))}", hint=hint)
        if isinstance(given, str):
            trees[str(name)] = _expression(str(name), given, names)
        else:
            ranges[str(name)] = _range(str(name), given)
    order = _order(trees)
    said = {name: known for name, known in ranges.items() if name not in trees}
    every = said | {name: UNSAID for name in names if name not in trees and name not in ranges}
    return OpenSizes(every, tuple(dims), {text: trees[text] for text in order})


def declared(type_: TensorType, name: str, shapes: Shapes) -> TensorType:
    """An input's type with the sizes that are settled."""
    given = shapes.get(name)
    if given is not None and not isinstance(given, int):
        return replace(type_, shape=tuple(given))
    settled = {size: value for size, value in shapes.items() if isinstance(value, int)}
    return replace(type_, shape=tuple(settled.get(str(dim), dim) for dim in type_.shape))


def _range(name: str, given: object) -> SizeRange:
    several = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    numbers = [n for each in several if (n := whole_number(each)) is not None]
    least_, largest, step = (*numbers, 1, 0)[:3] if len(numbers) == 2 else (*numbers, 0, 0, 0)[:3]
    if not len(numbers) == len(several) in (2, 3) or not (0 <= least_ <= largest and step > 0):
        raise InputError(
            f"dynamic= gives {quoted(name)} the range {given!r}",
            hint="a range is its least and its largest size, both included, and a step: (32, 1280, 32)",
        )
    first, last = -(-least_ // step) * step, largest // step * step
    if first > last:
        raise InputError(
            f"dynamic= gives {quoted(name)} the range {given!r}, which holds no multiple of {step}"
        )
    return SizeRange(first, last, step)


def _parsed(text: str) -> ast.expr | None:
    """The expression that a text of a file is; ``None`` for a name, and for what is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if not isinstance(tree, ast.Name) and _is_expression(tree) and _names(tree) else None


def _expression(name: str, text: str, names: Mapping[str, None]) -> ast.expr:
    hint = 'sums, differences, products, // of names and numbers: "past + seq"'
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not _is_expression(tree):
        raise InputError(
            f"{quoted(name)} is given as {quoted(text)}, which is no expression of sizes", hint=hint
        )
    for other in _names(tree):
        if other not in names:
            raise InputError(
                f"{quoted(name)} is given as {quoted(text)}, and there is no open size {quoted(other)}",
                hint=known_names(other, sorted(names), "its open sizes"),
            )
    return tree


_FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = MappingProxyType(
    {"max": most, "Max": most, "min": least, "Min": least, "floor": lambda a: a}
)
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = MappingProxyType({
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
})  # fmt: skip


def _is_expression(tree: ast.expr) -> bool:
    match tree:
        case ast.Name():
            return True
        case ast.Constant(value):
            return type(value) is int
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_expression(operand)
        case ast.BinOp(left, op, right):
            return type(op) in _OPERATORS and _is_expression(left) and _is_expression(right)
        case ast.Call(ast.Name(function), args, []):
            return function in _FUNCTIONS and bool(args) and all(map(_is_expression, args))
        case _:
            return False


def _names(tree: ast.expr) -> list[str]:
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions)
    return list(dict.fromkeys(node.id for node in every))


def _order(trees: Mapping[str, ast.expr]) -> list[str]:
    """The texts such that each comes after those in its expression."""
    order: dict[str, None] = {}

    def visit(text: str, within: tuple[str, ...]) -> None:
        if text in within:
            raise InputError(f"the sizes {' and '.join(map(quoted, within))} are given by each other")
        for name in _names(trees[text]):
            if name in trees and name not in order:
                visit(name, (*within, text))
        order[text] = None

    for text in trees:
        if text not in order:
            visit(text, ())
    return list(order)


def _evaluated(tree: ast.expr, known: dict[str, int]) -> int:
    match tree:
        case ast.Name(name):
            return known[name]
        case ast.Constant(value):
            return int(str(value))
        case ast.UnaryOp(op, operand):
            value = _evaluated(operand, known)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_evaluated(left, known), _evaluated(right, known))
        case ast.Call(ast.Name(function), args):
            return _FUNCTIONS[function](*(_evaluated(arg, known) for arg in args))
        case _:
            raise InternalError(f"no expression of sizes: {ast.dump(tree)}")


def _with(x: Index, symbol: str, value: Index) -> Index:
    """An expression with another in place of a symbol."""
    out = Index(x.const)
    for atom, c in x.terms:
        match atom:
            case Param() if atom.name == symbol:
                made = value
            case Param() if atom.factors:
                made = Index(1)
                for factor in atom.factors:
                    made = times(made, _with(index(factor), symbol, value))
            case FloorDiv(arg, divisor):
                made = floordiv(_with(arg, symbol, value), divisor)
            case Mod(arg, divisor):
                made = mod(_with(arg, symbol, value), divisor)
            case MinMax(op, args):
                made = (imin if op == "min" else imax)(*(_with(arg, symbol, value) for arg in args))
            case _:
                made = index(atom)
        out = out + made * c
    return out
