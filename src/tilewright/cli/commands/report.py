"""``tilewright report``: a page of what tuning tried, or of what a model was compiled to."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.files import check_output
from tilewright.cli.models import ZOO
from tilewright.cli.options import CompileOptions, common_options, compile_options, seed_option
from tilewright.cli.pages import LIMIT_SECONDS, measured, write_page
from tilewright.cli.state import State
from tilewright.driver import Limits, OtherLoad, measure_limits
from tilewright.report import Content, of_database
from tilewright.target import detect
from tilewright.tune import Database

#: Above this part of the CPUs' time that others use, what the machine can do at most cannot be told.
BUSY = 0.5
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
@click.option(
    "--before",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    callback=lambda ctx, option, value: None if value is None else value.isoformat(),
    metavar="DATE",
    help="Show beside each best time that of the sessions which began before a date (UTC).",
)
@click.option("--repeats", default=20, show_default=True, type=click.IntRange(min=1), help="Runs of MODEL.")
@seed_option("Seed of MODEL's random inputs.")
@compile_options
@common_options
def report(
    state: State,
    source: str,
    output: str,
    against: str | None,
    before: str | None,
    repeats: int,
    seed: int,
    options: CompileOptions,
) -> None:
    """Write one page that stands alone: the tasks of a tuning database, or the kernels of MODEL, measured.

    It opens in any browser, needs no network, and holds tables, curves, rooflines, plans, schedules and the
    graph.
    """
    check_output(output, source, against, *options.read)
    if not source.startswith(ZOO) and _is_database(source):
        if against is not None and before is not None:
            raise click.UsageError("--against and --before are two things to compare with: give one")
        with Database(source, read_only=True) as database:
            content = _of_databases(state, database, against, before)
    elif against is not None or before is not None:
        raise click.UsageError("--against and --before compare databases")
    else:
        content = measured(state, source, repeats, seed, options)
    write_page(state, output, content)


def _is_database(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        # what is wrong with it is said by who reads it as a model
        return False


def _of_databases(state: State, database: Database, against: str | None, before: str | None) -> Content:
    def limits(threads: int) -> Limits | None:
        with OtherLoad() as others:
            found = measure_limits(detect(), threads, LIMIT_SECONDS)
        if others.share is None or others.share <= BUSY:
            return found
        state.note(
            f"no limits are shown: others used {others.share:.0%} of the CPUs while they were measured"
        )
        return None

    if against is None:
        return of_database(database, before=before or "", limits=limits)
    with Database(against, read_only=True) as other:
        return of_database(database, other, limits=limits)
