"""``tilewright report``: a page of what tuning tried, or of what a model was compiled to."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.files import check_output, write_text
from tilewright.cli.models import ZOO, compile_for, feeds_for, open_model
from tilewright.cli.options import CompileOptions, common_options, compile_options
from tilewright.cli.state import State
from tilewright.driver import OtherLoad, measure_limits
from tilewright.report import Content, of_database, of_model, render
from tilewright.target import CpuTarget
from tilewright.tune import Database

#: What SQLite's files begin with.
_SQLITE = b"SQLite format 3\0"


@click.command()
@click.argument("source", metavar="DB|MODEL")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="The page that is written."
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="DB",
    help="Another database, whose best times are shown beside this one's.",
)
@click.option("--repeats", default=20, show_default=True, type=click.IntRange(min=1), help="Runs of MODEL.")
@click.option("--seed", default=0, show_default=True, help="Seed of MODEL's random inputs.")
@compile_options
@common_options
def report(
    state: State,
    source: str,
    output: str,
    against: str | None,
    repeats: int,
    seed: int,
    options: CompileOptions,
) -> None:
    """Write one page that stands alone: the tasks of a tuning database, or the kernels of MODEL, measured.

    It opens in any browser, needs no network, and holds tables, curves, rooflines, plans, schedules and the
    graph.
    """
    check_output(output, source, *([against] if against else []))
    if not source.startswith(ZOO) and _is_database(source):
        with Database(source) as database:
            content = _of_databases(database, against)
    elif against is not None:
        raise click.UsageError("--against compares two databases")
    else:
        content = _measured(state, source, repeats, seed, options)
    write_text(output, render(content))
    state.note(f"{output}: {len(content.kernels)} {'tasks' if content.kind == 'tuning' else 'kernels'}")


def _is_database(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        # what is wrong with it is said by who reads it as a model
        return False


def _of_databases(database: Database, against: str | None) -> Content:
    if against is None:
        return of_database(database)
    with Database(against) as other:
        return of_database(database, other)


def _measured(state: State, model: str, repeats: int, seed: int, options: CompileOptions) -> Content:
    compiled = compile_for(state, open_model(model), options)
    feeds = feeds_for(compiled, (), None, seed)
    limits = None
    with OtherLoad() as others:
        if isinstance(compiled.target, CpuTarget):
            named = {name for each in compiled.descriptions() for name in each.instructions}
            limits = measure_limits(compiled.target, compiled.threads, 0.05, sorted(named))
        profile = compiled.profile(feeds, repeats, limits=limits)
    if others.warning:
        state.note(others.warning)
    return of_model(compiled, profile, others.share)
