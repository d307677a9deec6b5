"""The back end of ``torch.compile``: what dynamo captures, made functional by torch, compiled here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tilewright.frontend import torch as frontend
from tilewright.torch.options import Options
from tilewright.torch.pieces import Share, compile_graph
from tilewright.torch.weights import PackedWeights, can_be_packed


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """Compile a graph that dynamo has captured: ``torch.compile(model, backend="tilewright")``.

    ``options`` are those of :class:`Options`. Forward and backward are compiled; torch runs what cannot be,
    with its own random numbers. Raises InputError for an option that there is not, UnsupportedOperatorError
    where ``{"fallback": False}`` forbids torch to run nodes.
    """
    made: Callable[..., Any] = backend_of(Options.of(options), Share())(module, inputs)
    return made


def backend_of(chosen: Options, share: Share) -> Callable[..., Any]:
    """A back end that notes in ``share`` how much it compiles."""
    return lambda module, inputs, **_: _compiled(module, inputs, chosen, share)


def _compiled(
    module: fx.GraphModule, inputs: Sequence[Any], chosen: Options, share: Share
) -> Callable[..., Any]:
    def compiler(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return boxed(compile_graph(graph, chosen, share=share))

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        static = torch._guards.TracingContext.get().fw_metadata.static_input_indices
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        weights = {
            at: inputs[at] for at in static if len(places) == len(inputs) and can_be_packed(inputs[at])
        }
        return boxed(PackedWeights(weights, lambda found: compile_graph(graph, chosen, found, share)))

    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=inference if chosen.freeze else compiler,
        decompositions=frontend.decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )(module, inputs)
    return made


def boxed(run: Callable[..., Sequence[Any]]) -> Callable[..., Any]:
    """A function of a list of arguments, which it empties, so that their memory is free soon."""

    def call(args: list[Any]) -> list[Any]:
        given = tuple(args)
        args.clear()
        return list(run(*given))

    call._boxed_call = True  # type: ignore[attr-defined]  # how torch knows such functions
    return torch._dynamo.disable(call)  # type: ignore[no-any-return,unused-ignore]
