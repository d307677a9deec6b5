"""Graphs of torch in pieces: compiled ones, and those that torch runs itself."""

from __future__ import annotations

import operator
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.split_module import split_module

from tilewright.driver import CompiledModel, DynamicModel, compile_model
from tilewright.frontend import torch as frontend
from tilewright.support import InternalError, ModelError, ResourceError, UnsupportedOperatorError, get_logger
from tilewright.torch.options import Options

_log = get_logger(__name__)

#: Graphs of given sizes that are kept for a graph whose sizes are open: the last used.
SIZES_KEPT: Final = 16

Runner = Callable[..., Sequence[Any]]


class CompiledPiece:
    """A compiled graph of torch: tensors in, tensors out, over the same memory where that is row-major."""

    __slots__ = ("_inputs", "_outputs", "_shown", "model")

    def __init__(
        self,
        model: CompiledModel | DynamicModel,
        read: frontend.ReadModule,
        shown: Mapping[str, tuple[int, int | None]] = MappingProxyType({}),
    ) -> None:
        self.model = model
        self._shown = shown
        values = list(dict.fromkeys(each.value for each in read.outputs if each.value))
        self._inputs = tuple(
            (each.at, each.name, None if _is_plain(each.order) else each.order) for each in read.inputs
        )
        self._outputs = tuple(
            (
                values.index(each.value) if each.value else None,
                None if _is_plain(each.order) else tuple(map(each.order.index, range(len(each.order)))),
                each.argument,
                each.number,
                each.pairs,
            )
            for each in read.outputs
        )

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """The results of the graph for its arguments."""
        feeds = {
            name: frontend.as_array(args[at] if order is None else args[at].permute(order))
            for at, name, order in self._inputs
        }
        # a constant may be one element that stands for all
        arrays = [x if x.flags.c_contiguous else x.copy() for x in self.model.run(None, feeds)]
        made = [frontend.as_tensor(array) for array in arrays]
        return tuple(
            _viewed(made[at], order, pairs)
            if at is not None
            else (args[argument] if argument is not None else self._number(number, args))
            for at, order, argument, number, pairs in self._outputs
        )

    def sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """What the arguments say of torch's symbols."""
        shown = self._shown.items()
        return {name: args[at] if axis is None else args[at].size(axis) for name, (at, axis) in shown}

    def _number(self, number: Any, args: Sequence[Any]) -> Any:
        return frontend.size_of(number, self.sizes(args)) if isinstance(number, torch.SymInt) else number


def _viewed(tensor: torch.Tensor, order: Sequence[int] | None, pairs: bool) -> torch.Tensor:
    """A result as torch counts its axes, pairs as the complex numbers that they are."""
    whole = torch.view_as_complex(tensor) if pairs else tensor
    return whole if order is None else whole.permute(order)


def _is_plain(order: Sequence[int]) -> bool:
    return list(order) == [*range(len(order))]


@dataclass(slots=True)
class Share:
    """How much of a graph was compiled: nodes that compute, and those that torch runs, with the reasons."""

    nodes: int = 0
    pieces: int = 0
    eager: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        left = sum(self.eager.values())
        told = "; ".join(f"{count} x {what}" for what, count in self.eager.most_common())
        return f"{self.nodes - left} of {self.nodes} nodes compiled in {self.pieces} pieces" + (
            f", torch runs {told}" if left else ""
        )


def compile_graph(
    module: fx.GraphModule,
    options: Options,
    frozen: Mapping[int, torch.Tensor] | None = None,
    share: Share | None = None,
) -> Runner:
    """Compile a graph of ATen operators with fake tensors; torch runs what cannot be compiled.

    The result takes the graph's arguments and gives its results in order. Raises UnsupportedOperatorError
    listing what cannot be compiled where the options forbid to fall back.
    """
    share = share or Share()
    with unset_fake_temporarily():
        return _compiled(module, options, frozen, share)


def _compiled(
    module: fx.GraphModule, options: Options, frozen: Mapping[int, torch.Tensor] | None, share: Share
) -> Runner:
    if _is_open(module):
        return _open(module, options, frozen, share)
    read = frontend.read_module(module, frozen=frozen)
    share.nodes += sum(_computes(node) for node in module.graph.nodes)
    if read.refused and not options.fallback:
        raise UnsupportedOperatorError.of([(each.location, each.reason) for each in read.refused.values()])
    for refusal in read.refused.values():
        share.eager[str(refusal)] += 1
    runner = (
        _whole(module, read, options, share) if not read.refused else _split(module, read, options, share)
    )
    _log.info("%s", share)
    return runner


def _computes(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and not _is_number(node)


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def _whole(module: fx.GraphModule, read: frontend.ReadModule, options: Options, share: Share) -> Runner:
    """A graph as one model, or torch's own where it computes nothing or cannot be compiled after all."""
    compute = [node for node in module.graph.nodes if _computes(node)]
    if all(str(node.target) in frontend.VIEWS for node in compute):
        return _eager(module)
    assert read.graph is not None
    try:
        model = compile_model(read.graph, **options.of_models())
    except (ModelError, ResourceError, InternalError) as error:
        if not options.fallback:
            raise
        _log.warning("torch runs a graph of %d nodes: %s", len(compute), error)
        for node in compute:
            share.eager[f"{node.target} (its graph was not compiled)"] += 1
        return _eager(module)
    share.pieces += 1
    return CompiledPiece(model, read)


def _eager(module: fx.GraphModule) -> Runner:
    """Torch's own way of running a graph, without the strides that it had when it was traced."""
    module.graph.lint()
    forward: Runner = module.forward

    def run(*args: Any) -> Sequence[Any]:
        made = forward(*args)
        return made if isinstance(made, list | tuple) else (made,)

    return run


def _split(module: fx.GraphModule, read: frontend.ReadModule, options: Options, share: Share) -> Runner:
    """A graph cut where torch has to run nodes, as few pieces as there are turns."""
    module, stages = _in_turns(module, _stages(module, read.refused))
    named = {f"submod_{number}": number for number in set(stages.values())}
    whole = split_module(module, module, lambda node: stages[node], keep_original_order=True)
    for name, piece in whole.named_children():
        number = named.get(name)
        if number is None or number % 2 or not isinstance(piece, fx.GraphModule):
            continue
        again = frontend.read_module(piece)
        if again.refused:
            for refusal in again.refused.values():
                share.eager[str(refusal)] += 1
            continue
        runner = _whole(piece, again, options, share)
        if isinstance(runner, CompiledPiece):
            single = not isinstance(_results(piece), list | tuple)
            setattr(whole, name, _Piece(runner, single))
    whole.recompile()
    return _eager(whole)


def _results(module: fx.GraphModule) -> Any:
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    return output.args[0]


class _Piece(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A compiled piece in a graph of torch's."""

    def __init__(self, runner: CompiledPiece, single: bool) -> None:
        super().__init__()
        self._runner, self._single = runner, single

    def forward(self, *args: Any) -> Any:
        made = self._runner(*args)
        return made[0] if self._single else made


def _stages(module: fx.GraphModule, refused: Mapping[fx.Node, object]) -> dict[fx.Node, int]:
    """In which turn each node runs: even ones are compiled, odd ones are torch's.

    A node runs as early as what it reads allows. What draws random numbers or has effects keeps its order.
    """
    stages: dict[fx.Node, int] = {}
    last = 1
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            stages[node] = 0
            continue
        before = [stages[source] for source in node.all_input_nodes]
        if node.target is operator.getitem:
            stages[node] = before[0]
            continue
        first, odd = max(before, default=0), node in refused
        if first % 2 != odd:
            first += 1
        if odd and (node.is_impure() or _draws(node)):
            first = last = max(first, last)
        stages[node] = first
    return stages


def _in_turns(
    module: fx.GraphModule, stages: Mapping[fx.Node, int]
) -> tuple[fx.GraphModule, dict[fx.Node, int]]:
    """The same graph with its nodes in the order of their turns."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    first = ("placeholder", "get_attr")
    for node in sorted(stages, key=lambda node: -1 if node.op in first else stages[node]):
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(fx.map_arg(_results(module), copies.__getitem__))
    return fx.GraphModule(module, graph), {copies[node]: stages[node] for node in copies}


def _draws(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _is_open(module: fx.GraphModule) -> bool:
    """Whether the graph's sizes or numbers are those of a run."""

    def symbolic(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return not all(isinstance(n, int) for n in (*value.shape, *value.stride()))
        return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)

    placeholders = (node for node in module.graph.nodes if node.op == "placeholder")
    return any(symbolic(node.meta.get("val")) for node in placeholders)


def _open(
    module: fx.GraphModule, options: Options, frozen: Mapping[int, torch.Tensor] | None, share: Share
) -> Runner:
    """A graph whose sizes are open, compiled once; at the sizes of each run, where there is no such plan."""
    alone = _Sized(module, options, share)
    compute = [node for node in module.graph.nodes if _computes(node)]
    if all(str(node.target) in frontend.VIEWS for node in compute):
        return alone
    source = frontend.OpenModule(module, frozen or {})
    try:
        model = compile_model(source, dynamic=source.ranges, **options.of_models())
    except (ModelError, ResourceError, InternalError) as error:
        _log.info("a graph of %d nodes is compiled at each size: %s", len(compute), error)
        return alone
    if not model.plans or source.read is None:
        return alone
    share.nodes += len(compute)
    share.pieces += 1
    piece = CompiledPiece(model, source.read, source.shown)
    ranges = model.ranges
    _log.info("%s, at all sizes of %s", share, ranges)

    def run(*args: Any) -> Sequence[Any]:
        sizes = piece.sizes(args)
        inside = any(
            all(low <= sizes.get(name, low) <= high for name, (low, high) in known.items())
            for known in ranges
        )
        return piece(*args) if inside else alone(*args)

    return run


class _Sized:
    """A graph whose sizes are open: compiled for the sizes of each run, the last ones kept."""

    def __init__(self, module: fx.GraphModule, options: Options, share: Share) -> None:
        self._module, self._options, self._share = module, options, share
        self._made: OrderedDict[tuple[object, ...], Runner] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Sequence[Any]:
        """The results of the graph for arguments of any sizes."""
        key = tuple((tuple(x.shape), tuple(x.stride())) if isinstance(x, torch.Tensor) else x for x in args)
        with self._lock:
            runner = self._made.get(key)
            if runner is None:
                runner = self._made[key] = self._compiled(args)
                while len(self._made) > SIZES_KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
        return runner(*args)

    def _compiled(self, args: Sequence[Any]) -> Runner:
        module = at_sizes(self._module, args)
        return compile_graph(module, self._options, share=self._share)


def at_sizes(module: fx.GraphModule, args: Sequence[Any]) -> fx.GraphModule:
    """A copy of a graph with fake tensors of the sizes of given arguments, and numbers for its symbols."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copy = fx.GraphModule(module, graph)
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    with torch.no_grad():
        FakeTensorProp(copy, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*plain)
    for node in list(copy.graph.nodes):
        value = node.meta.get("val")
        if isinstance(value, bool | int | float) and node.op == "call_function":
            _replace(node, value)
        elif node.op == "placeholder" and isinstance(value, bool | int | float):
            _replace(node, value, keep=True)
    copy.recompile()
    return copy


def _replace(node: fx.Node, value: object, keep: bool = False) -> None:
    for user in list(node.users):
        swap = lambda arg: value if arg is node else arg  # noqa: E731
        user.args = fx.map_arg(user.args, swap)
        user.kwargs = fx.map_arg(user.kwargs, swap)
    if not keep:
        node.graph.erase_node(node)
