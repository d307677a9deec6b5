"""Compiling LLVM IR text for a target, in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.codegen.llvm import machine
from tilewright.support import InternalError, digest
from tilewright.target import Target

Output = Literal["object", "assembly", "ir"]
DEFAULT_LEVEL: Final = 1
AS_WRITTEN_LEVEL: Final = machine.EVERYTHING
"""For functions whose loops are as they were written: these LLVM may still put in lanes and unroll."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One module to compile: its text, and everything else that the result depends on."""

    ir: str
    triple: str
    cpu: str
    features: str
    level: int = DEFAULT_LEVEL
    output: Output = "object"

    @property
    def key(self) -> str:
        """The digest under which the result may be kept."""
        return digest(
            self.ir,
            self.triple,
            self.cpu,
            self.features,
            machine.PIPELINES[self.level],
            machine.CODEGEN_LEVEL,
            self.output,
            machine.version(),
        )


def compile_request(
    ir: str, target: Target, *, opt: int = DEFAULT_LEVEL, output: Output = "object"
) -> CompileRequest:
    """The request to compile a module for a target. Raises InternalError for an unknown level."""
    if opt not in machine.PIPELINES:
        raise InternalError(f"no optimisation level {opt}; they are {sorted(machine.PIPELINES)}")
    return CompileRequest(ir, target.llvm_triple, target.llvm_cpu, target.llvm_features, opt, output)


def run_request(wanted: CompileRequest) -> bytes:
    """Compile in this process. Raises InternalError with LLVM's words where it refuses the module."""
    try:
        return machine.compile_text(
            wanted.ir,
            triple=wanted.triple,
            cpu=wanted.cpu,
            features=wanted.features,
            level=wanted.level,
            output=wanted.output,
        )
    except machine.LlvmError as error:
        raise refusal(str(error)) from None


def refusal(words: str) -> InternalError:
    """The error for a module that LLVM refused."""
    return InternalError(f"LLVM refused generated code: {words}", hint="please report it with the model")


def compile_ir(ir: str, target: Target, *, opt: int = DEFAULT_LEVEL) -> bytes:
    """Object code of a module; position-independent, ELF for Linux targets.

    ``opt`` chooses the passes, see ``machine.PIPELINES``. Raises InternalError where LLVM refuses the module.
    """
    return run_request(compile_request(ir, target, opt=opt))


def assembly(ir: str, target: Target, *, opt: int = DEFAULT_LEVEL) -> str:
    """Assembly of a module, with LLVM's comments on spills; for people and for ``count_vector_spills``."""
    return run_request(compile_request(ir, target, opt=opt, output="assembly")).decode()


def optimised_ir(ir: str, target: Target, *, opt: int = DEFAULT_LEVEL) -> str:
    """The module's text after the passes of ``opt``."""
    return run_request(compile_request(ir, target, opt=opt, output="ir")).decode()
