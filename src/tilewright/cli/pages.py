"""Pages of models: compiled, run with random inputs, and measured beside what the machine can do."""

from __future__ import annotations

from tilewright.cli.files import write_text
from tilewright.cli.models import compile_for, feeds_for, open_model
from tilewright.cli.options import CompileOptions
from tilewright.cli.state import State
from tilewright.driver import OtherLoad, measure_limits
from tilewright.report import Content, of_model, render
from tilewright.target import CpuTarget

#: Seconds for each limit of the machine.
LIMIT_SECONDS = 0.05


def measured(state: State, model: str, repeats: int, seed: int, options: CompileOptions) -> Content:
    """What a page shows of a model."""
    compiled = compile_for(state, open_model(model), options)
    feeds = feeds_for(compiled, (), None, seed)
    limits = None
    with OtherLoad() as others:
        if isinstance(compiled.target, CpuTarget):
            named = {name for each in compiled.descriptions() for name in each.instructions}
            limits = measure_limits(compiled.target, compiled.threads, LIMIT_SECONDS, sorted(named))
        profile = compiled.profile(feeds, repeats, limits=limits)
    if others.warning:
        state.note(others.warning)
    return of_model(compiled, profile, others.share)


def write_page(state: State, output: str, content: Content) -> None:
    """Write a page, and say what is on it."""
    write_text(output, render(content))
    state.note(f"{output}: {len(content.kernels)} {'tasks' if content.kind == 'tuning' else 'kernels'}")
