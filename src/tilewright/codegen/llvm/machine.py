"""The calls into LLVM: text in, object code or assembly out. Runs in this process, and as a worker's program.

Only llvmlite and the standard library are imported, so that a worker process starts fast: started as a
program, this file serves requests on its standard input until that closes. A frame is a length (4 bytes,
little-endian) and that many bytes of JSON or of raw content; a request is two frames (JSON options, IR text),
an answer two frames (JSON status, content).

The IR that comes in is mostly scheduled: vectors are explicit, loops have their final shape. Passes that
vectorise or unroll could only undo decisions, so the default pipeline cleans up and no more; loop nests that
stay as they were written go through all of LLVM's.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from functools import lru_cache
from typing import Any, BinaryIO, Final

import llvmlite
import llvmlite.binding as llvm

PIPELINES: Final = {
    0: "none",
    1: "sroa, always-inline, instcombine, simplifycfg",
    2: "LLVM's O1 without vectorisers and unrolling",
    3: "LLVM's O2 without vectorisers and unrolling",
    4: "LLVM's O3",
}
"""What each optimisation level runs before code generation. Part of a cached object's key: change it with
them.

Processor time of the 28 modules of ResNet-18, 490 KB of text, on a Zen 4: parsing and verifying 27 ms, level
1 34 ms, level 2 213 ms, level 3 263 ms, code generation 280 ms. Levels 2 and 3 leave the micro-kernels no
better, and have them spill more. Level 4 is for loops that are as somebody wrote them.
"""
EVERYTHING: Final = 4

CODEGEN_LEVEL: Final = 2
"""LLVM's own level in code generation: 0 spills every register, 3 gains nothing over 2."""


class LlvmError(Exception):
    """LLVM refused a module; the text is its first line of explanation."""


def version() -> str:
    """The versions of LLVM and of its binding, as part of cache keys."""
    return f"{'.'.join(map(str, llvm.llvm_version_info))}/{llvmlite.__version__}"


@lru_cache(maxsize=1)
def _initialised() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=8)
def machine(triple: str, cpu: str, features: str) -> Any:
    """LLVM's target machine for position-independent code; llvmlite serialises its use.

    Raises LlvmError for a triple that this LLVM does not know.
    """
    _initialised()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise LlvmError(first_line(str(error))) from None
    made = target.create_target_machine(
        cpu=cpu, features=features, opt=CODEGEN_LEVEL, reloc="pic", codemodel="default"
    )
    made.set_asm_verbosity(True)
    return made


def jit_machine() -> Any:
    """A machine of this process for LLVM's linker to own; it links objects, whatever CPU they are for."""
    _initialised()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(reloc="pic", codemodel="default", jit=True)


def first_line(text: str) -> str:
    """The first line of LLVM's explanation; of a parsing error, with the line of IR that it is about."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0] == "LLVM IR parsing error":
        lines = [": ".join(lines[1:3]).removeprefix("<string>:")]
    return lines[0][:500] if lines else "no explanation"


def optimise(module: Any, target_machine: Any, level: int) -> None:
    """Run the passes of an optimisation level over a module, in place."""
    if level == 0:
        return
    tuning = llvm.create_pipeline_tuning_options(speed_level=level - 1)
    everything = level == EVERYTHING
    tuning.loop_vectorization = everything
    tuning.slp_vectorization = everything
    tuning.loop_unrolling = everything
    tuning.loop_interleaving = everything
    builder = llvm.create_pass_builder(target_machine, tuning)
    if level == 1:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_always_inliner_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)


def compile_text(ir: str, *, triple: str, cpu: str, features: str, level: int, output: str) -> bytes:
    """Compile IR text; ``output`` is ``object``, ``assembly`` or ``ir`` (after the passes).

    Raises LlvmError where the text does not parse, does not verify, or cannot be compiled.
    """
    target_machine = machine(triple, cpu, features)
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
        optimise(module, target_machine, level)
        if output == "ir":
            return str(module).encode()
        if output == "assembly":
            return str(target_machine.emit_assembly(module)).encode()
        return bytes(target_machine.emit_object(module))
    except RuntimeError as error:
        raise LlvmError(first_line(str(error))) from None


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; ``None`` where the stream ended."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack("<I", head)[0]
    content = stream.read(size)
    return content if len(content) == size else None


def frame(content: bytes) -> bytes:
    """The content with its length before it."""
    return struct.pack("<I", len(content)) + content


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the stream ends. The option ``ping`` alone asks for an empty answer."""
    _initialised()
    while True:
        head, text = read_frame(requests), read_frame(requests)
        if head is None or text is None:
            return
        options = json.loads(head)
        status, content = {"ok": True}, b""
        try:
            if "ping" not in options:
                content = compile_text(text.decode(), **options)
        except LlvmError as error:
            status, content = {"ok": False}, str(error).encode()
        answers.write(frame(json.dumps(status).encode()) + frame(content))
        answers.flush()


def main() -> None:
    """Serve standard input; whatever LLVM may print goes to standard error instead of into the answers."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
