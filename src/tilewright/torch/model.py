"""Modules of torch as models: ``from_torch``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from tilewright.frontend import torch as frontend
from tilewright.support import InputError, ModelError, UnsupportedOperatorError
from tilewright.torch.options import Options
from tilewright.torch.pieces import CompiledPiece, Runner, Share, compile_graph
from tilewright.torch.weights import PackedWeights


def from_torch(
    module: torch.nn.Module | ExportedProgram,
    example: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
) -> TorchModel:
    """Compile a module of torch for inference, or a program that ``torch.export`` has made of one.

    ``example`` are arguments as the module takes them, which say shapes and element types; ``dynamic_shapes``
    names the sizes that are open, as ``torch.export.export`` has it. Weights stay the module's: changes of
    them in place are seen, and they are packed again then. ``options`` are those of the back end.

    Raises InputError for what is no module, ModelError where torch cannot export it,
    UnsupportedOperatorError, listing nodes by the module's path and the line, where
    ``options={"fallback": False}`` forbids torch to run what cannot be compiled.
    """
    chosen = Options.of(options)
    if isinstance(module, ExportedProgram):
        program = module
    elif isinstance(module, torch.nn.Module):
        try:
            with torch.no_grad():
                program = torch.export.export(
                    module, tuple(example), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
                )
        except (torch._dynamo.exc.TorchDynamoException, RuntimeError, ValueError, AssertionError) as error:
            raise ModelError(
                f"torch cannot export the module {type(module).__name__}: {error}",
                hint='torch.compile(module, backend="tilewright") compiles what it can of any module',
            ) from error
    else:
        raise InputError(
            f"from_torch takes a module or an exported program, not {type(module).__name__}",
            hint="tilewright.from_torch(module, (example,))",
        )
    return TorchModel(program, chosen)


class TorchModel:
    """A compiled module of torch: it is called as the module is, with tensors, and gives tensors."""

    def __init__(self, program: ExportedProgram, options: Options) -> None:
        lowered = program.run_decompositions(dict(frontend.decompositions()))
        self._spec = lowered.call_spec
        signature = lowered.graph_signature
        self._arguments: list[torch.Tensor | None] = []
        for spec in signature.input_specs:
            target = str(spec.target)
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                # the module's own, where it has them: the program may hold copies
                held = {**lowered.constants, **lowered.state_dict, **program.constants, **program.state_dict}
                self._arguments.append(held[target])
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                self._arguments.append(lowered.constants[target])
            elif spec.kind is InputKind.USER_INPUT:
                self._arguments.append(None)
            else:
                raise UnsupportedOperatorError(f"the module takes a {spec.kind.name.lower()}")
        self._changed: list[int | None] = []
        for out in signature.output_specs:
            name = str(out.target)
            match out.kind:
                case OutputKind.USER_OUTPUT:
                    self._changed.append(None)
                case OutputKind.BUFFER_MUTATION:
                    self._changed.append([str(s.target) for s in signature.input_specs].index(name))
                case OutputKind.USER_INPUT_MUTATION:
                    self._changed.append(
                        [getattr(s.arg, "name", "") for s in signature.input_specs].index(name)
                    )
                case _:
                    raise UnsupportedOperatorError(f"the module gives a {out.kind.name.lower()}")
        self.share = Share()
        """How much was compiled."""
        written = {at for at in self._changed if at is not None}
        frozen = {at: x for at, x in enumerate(self._arguments) if x is not None and at not in written}
        module = lowered.graph_module

        def pack(weights: Mapping[int, torch.Tensor]) -> Runner:
            self.share = Share()
            return compile_graph(module, options, weights, self.share)

        self._run = PackedWeights(frozen, pack)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on tensors, as the module is called. Raises InputError for arguments of another structure."""
        given, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._spec.in_spec:
            raise InputError(
                f"the model was compiled for arguments {self._spec.in_spec}, and is given {spec}",
                hint="call it as the example was given",
            )
        rest = iter(given)
        arguments = [next(rest) if x is None else x for x in self._arguments]
        with torch.no_grad():
            made = self._run(*arguments)
            for at, value in zip(self._changed, made, strict=True):
                if at is not None:
                    arguments[at].copy_(value)
        results = [value for at, value in zip(self._changed, made, strict=True) if at is None]
        return pytree.tree_unflatten(results, self._spec.out_spec)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one file that ``tilewright.load`` runs, with neither torch nor the compiler.

        Raises UnsupportedOperatorError where torch runs parts of it, or it changes its own buffers.
        """
        runner = self._run.current(self._arguments)
        if not isinstance(runner, CompiledPiece) or any(at is not None for at in self._changed):
            raise UnsupportedOperatorError(
                f"the model cannot be saved as one: {self.share}",
                hint="options={'fallback': False} names what cannot be compiled",
            )
        runner.model.save(path)
