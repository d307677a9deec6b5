"""Loop nests in C: ``FILE.c`` or ``FILE.c:NAME`` in place of a model, compiled, emitted and run in place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from tilewright.cli.arrays import read_feeds, write_archive
from tilewright.cli.files import write_text
from tilewright.cli.options import CompileOptions, parse_assignments
from tilewright.cli.state import State
from tilewright.driver import Nest, TensorInfo, compile_model, names_c
from tilewright.ir import print_function
from tilewright.report import as_reasons
from tilewright.support import counted, quoted
from tilewright.target import CpuTarget, find_target

Array = npt.NDArray[Any]
Sizes = dict[str, int]


def names_nest(text: str) -> bool:
    """Whether a MODEL argument names a C file, or a function of one (``FILE.c:NAME``)."""
    return names_c(text) is not None


def nest_arguments(text: str, options: CompileOptions) -> dict[str, Any]:
    """What decides the compilation of a C file, as arguments of ``compile_model``, but for the plan.

    Raises UsageError for options that nests do not have.
    """
    plain = CompileOptions()
    for field in ("precision", "accuracy", "winograd", "checks", "wait_policy"):
        if getattr(options, field) != getattr(plain, field):
            option = {"checks": "no-checks"}.get(field, field.replace("_", "-"))
            raise click.UsageError(f"--{option} is for models, {quoted(text)} is a nest in C")
    target = find_target(options.target)
    if not isinstance(target, CpuTarget):
        raise click.UsageError(f"nests are compiled for CPUs, {target.name} is none")
    if strange := next((name for name, size in options.shapes.items() if not isinstance(size, int)), None):
        raise click.UsageError(f"{strange} of {quoted(text)} is one size, got several")
    return {
        "sizes": options.shapes,
        "target": target,
        "threads": options.threads,
        "strategy": options.strategy,
        "records": options.records,
        "defines": options.defines,
        "headers": options.headers,
    }


def open_nest(text: str, options: CompileOptions) -> tuple[Nest, Sizes]:
    """The nest of a C file, and its sizes. Raises UsageError for open ones, as :func:`nest_arguments`."""
    made = compile_model(text, plan=options.plan, **nest_arguments(text, options))
    assert isinstance(made, Nest)
    if made.open_sizes:
        given = " ".join(f"--shape {name}=N" for name in made.open_sizes)
        raise click.UsageError(f"{quoted(text)} leaves sizes open: give {given}")
    return made, made.sizes


def arguments_of(nest: Nest, sizes: Mapping[str, int]) -> list[TensorInfo]:
    """The arrays and real numbers that a nest takes at given sizes."""
    buffers = (b for b in nest.at(sizes).buffers if b.name in nest.order)
    return [TensorInfo(b.name, b.dtype.numpy, tuple(e.as_int() for e in b.shape)) for b in buffers]


def compile_nest(state: State, text: str, options: CompileOptions, emit: str, output: str | None) -> None:
    """``tilewright compile FILE.c``: what came of it, its code (``--emit c``) or header (``c-header``)."""
    if emit not in ("artefact", "c", "c-header"):
        raise click.UsageError(f"--emit {emit} is for models: nests are emitted as c and c-header")
    start = time.perf_counter()
    nest, sizes = open_nest(text, options)
    if emit == "artefact":
        nest.kernel(sizes)
        if output is not None:
            nest.save(output, sizes)
    else:
        assert output is not None
        write_text(output, nest.c_source(sizes) if emit == "c" else nest.c_header())
    seconds = time.perf_counter() - start
    if state.json:
        told = nest.explain(sizes)
        state.print_json(
            {
                "command": "compile",
                "model": text,
                "name": nest.name,
                **{key: told[key] for key in ("strategy", "threads", "arguments", "notes")},
                "written": [output] if output else [],
                "seconds": seconds,
            }
        )
        return
    _say_nest(state, nest, sizes)
    state.say(f"    time  {seconds:.2f} s")
    if output is not None:
        state.note(f"written to {output}")


def _say_nest(state: State, nest: Nest, sizes: Mapping[str, int]) -> None:
    """Arguments, target and decisions of a nest."""
    for row, info in zip(nest.explain(sizes)["arguments"], arguments_of(nest, sizes), strict=True):
        kind = ("in-out" if row["read"] else "output") if row["written"] else "input"
        state.say(f"{kind:>8}  {info}")
    state.say(f"  target  {nest.target.name}, {counted(nest.threads, 'thread')}")
    for note in nest.scheduled(sizes).notes:
        state.say(f"    nest  {note}")


def explain_nest(state: State, text: str, options: CompileOptions, show: str, why: str | None) -> None:
    """``tilewright explain FILE.c``: what was decided (``groups``), its loops, or its code in some form.

    With the name of an array also why the parts that write it are made as they are.
    """
    nest, sizes = open_nest(text, options)
    if why is not None:
        found = [reasons for each in nest.why(why, sizes) for reasons in each]
        if state.json:
            rows = [{**asdict(reasons), "margin": reasons.margin} for reasons in found]
            state.print_json({"command": "explain", "model": text, "why": why, "nests": rows})
        for reasons in found:
            state.say(as_reasons(reasons))
        return
    told = nest.explain(sizes)
    match show:
        case "plan":
            state.say(nest.plan(sizes).to_json().rstrip())
            return
        case "schedule":
            shown = "\n".join([*(f"# {note}" for note in told["notes"]), told["schedule"]])
        case "groups" | "loops":
            shown = told["loops"]
        case "lowered":
            shown = print_function(nest.kernel(sizes).lowered())
        case _:
            shown = nest.kernel(sizes).code_text(show)
    if state.json:
        state.print_json({"command": "explain", "model": text, "show": show, **told, "text": shown})
    elif show == "groups":
        _say_nest(state, nest, sizes)
    else:
        state.say(shown.rstrip())


def profile_nest(state: State, text: str, options: CompileOptions, repeats: int) -> None:
    """``tilewright profile FILE.c``: how long each outermost loop takes by itself, the longest first."""
    nest, sizes = open_nest(text, options)
    found = sorted(nest.profile(sizes, repeats).items(), key=lambda each: -each[1])
    whole = sum(seconds for _, seconds in found)
    if state.json:
        rows = [{"nest": name, "ms": seconds * 1e3} for name, seconds in found]
        state.print_json({"command": "profile", "model": text, "nests": rows})
    for name, seconds in found:
        state.say(f"{seconds * 1e3:9.4f} ms {seconds / whole:6.1%}  {name}")


def run_nest(
    state: State,
    text: str,
    options: CompileOptions,
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
    output: str | None,
    repeats: int,
) -> tuple[dict[str, Array], float]:
    """``tilewright run FILE.c``: the arrays that it writes after one run, and the median seconds of all runs.

    Arguments that no file has are drawn; every run has arrays of its own.
    """
    nest, sizes = open_nest(text, options)
    infos, func = arguments_of(nest, sizes), nest.at(sizes)
    rng = np.random.default_rng(seed)
    given = read_feeds(parse_assignments(files, "--input"), archive, infos)
    for info in infos:
        if info.name not in given:
            given[info.name] = rng.uniform(0.5, 1.5, info.shape).astype(info.dtype)
    seconds = []
    results: dict[str, Array] = {}
    for n in range(repeats + 1):
        arrays = {name: np.array(array, copy=True) for name, array in given.items()}
        start = time.perf_counter()
        returned = nest(**arrays)
        seconds.append(time.perf_counter() - start)
        if n == 0:
            results = {name: arrays[name] for name in func.outputs if name in arrays}
            if returned is not None:
                results["returned"] = np.asarray(returned)
    if output is not None:
        write_archive(output, results)
    # the first run compiles
    return results, float(np.median(seconds[1:]))
