"""isl's scheduler in a process of its own, which can be ended: no count of operations stops it everywhere.

This file is run as a script, so that it loads isl and nothing else: a question as JSON on the standard input,
``{"ok": schedule}`` or ``{"spent": operations}`` on the standard output.
"""

from __future__ import annotations

import json
import resource
import sys

import islpy as isl


def main() -> None:
    """Answer one question."""
    asked = json.load(sys.stdin)
    # limits of the kernel's hold also where the parent is gone
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"] + 1))
    resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
    context = isl.DEFAULT_CONTEXT
    domain = isl.UnionSet.read_from_str(context, asked["domain"])
    order = isl.UnionMap.read_from_str(context, asked["order"])
    context.set_schedule_maximize_band_depth(1)
    context.set_schedule_serialize_sccs(int(asked["fusion"] == "min"))
    context.set_schedule_whole_component(int(asked["fusion"] == "max"))
    # without it isl looks for fusion so long that no budget is enough (2mm, gemver)
    context.set_schedule_maximize_coincidence(1)
    constraints = isl.ScheduleConstraints.on_domain(domain)
    constraints = constraints.set_validity(order).set_coincidence(order).set_proximity(order)
    context.reset_operations()
    context.set_max_operations(asked["operations"])
    try:
        answer = {"ok": str(constraints.compute_schedule())}
    except isl.Error as error:
        answer = {"spent": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
