"""``tilewright diff``: what two plans of a model decide differently."""

from __future__ import annotations

from dataclasses import asdict

import click

from tilewright.cli.options import common_options, plan_text
from tilewright.cli.state import FAILED, State
from tilewright.driver import model_plan_from_json, plan_differences
from tilewright.support import counted, shortened

#: Columns of a line, at most; ``--json`` shortens nothing.
WIDTH = 120


@click.command()
@click.argument("first", metavar="PLAN", type=click.Path(dir_okay=False))
@click.argument("second", metavar="PLAN", type=click.Path(dir_okay=False))
@common_options
@click.pass_context
def diff(context: click.Context, state: State, first: str, second: str) -> None:
    """Show what two plans decide differently: of the graph, and of each kernel that both have.

    PLAN is what `tilewright explain MODEL --show plan` printed. Status 1 where they differ.
    """
    found = plan_differences(*(model_plan_from_json(plan_text(path)) for path in (first, second)))
    if state.json:
        state.print_json({"command": "diff", "plans": [first, second], "differences": [*map(asdict, found)]})
    for each in found:
        state.say(shortened(each.place, WIDTH))
        state.say(shortened(f"  - {each.first}", WIDTH))
        state.say(shortened(f"  + {each.second}", WIDTH))
    state.say(counted(len(found), "difference"))
    if found:
        context.exit(FAILED)
