"""Random pipelines, and random plans of their groups: what property tests and fuzzers draw, from a seed."""

from dataclasses import replace
from random import Random

from tilewright import lang
from tilewright.plan import RULES, AtLoop, Cluster, Context, UnitPlan
from tilewright.plan.pipeline.group import is_plain
from tilewright.plan.pipeline.group_plan import invalid
from tilewright.schedule import Schedule, Trace

KINDS = ("taps", "taps", "taps", "point", "sum", "down", "up", "clamped", "lookup")


def random_program(rng: Random, stages: int = 5):
    """Stages of integers on small images: stencils, sums, other rates, clamped borders, looked-up places."""
    only_taps = rng.random() < 0.3
    h, w = rng.randint(3, 9) + 4 * only_taps, rng.randint(2, 7)
    x = lang.placeholder((h, w), "i32", name="X")
    made, sizes, used = [x], {x: (h, w)}, set()
    for n in range(rng.randint(2, stages)):
        name, kind = f"S{n}", "taps" if only_taps else rng.choice(KINDS)
        a = rng.choice([made[-1], made[-1], *made])
        p, q = sizes[a]
        if kind == "sum" and min(p, q) > 1:
            lo = rng.choice((0, -1))
            k, j = lang.reduce_axis((lo, lo + 2), "k"), lang.reduce_axis((lo, lo + 2), "j")
            shape = (p - 1, q - 1)
            new = lang.compute(
                shape,
                lambda y, x, a=a, k=k, j=j, lo=lo: lang.sum(a[y + k - lo, x + j - lo], axis=(k, j)),
                name=name,
            )
        elif kind == "down" and min(p, q) > 2:
            shape = (p // 2, q // 2)
            new = lang.compute(shape, lambda y, x, a=a: a[2 * y, 2 * x] + a[2 * y + 1, 2 * x + 1], name=name)
        elif kind == "up" and p < 8:
            shape = (2 * p - 2 or 1, q)
            new = lang.compute(shape, lambda y, x, a=a: a[y // 2, x] * 3 - a[(y + 1) // 2, x], name=name)
        elif kind == "clamped":
            shape, dy = (p, q), rng.randint(1, 2)
            near = lang.boundary(a, mode="clamp")
            new = lang.compute(shape, lambda y, x, f=near, d=dy: f[y - d, x] + 2 * f[y + 1, x + 1], name=name)
        elif kind == "lookup":
            shape, b = (p, q), rng.choice(made)
            u = sizes[b][0]
            new = lang.compute(
                shape, lambda y, x, a=a, b=b, u=u: b[lang.clamp(a[y, x], 0, u - 1), 0] - a[y, x], name=name
            )
            used.add(b)
        else:
            b = a if only_taps else rng.choice(made)
            p, q = min(p, sizes[b][0]), min(q, sizes[b][1])
            dy, dx = (
                (0, 0) if kind == "point" else (rng.randint(0, min(2, p - 1)), rng.randint(0, min(2, q - 1)))
            )
            shape = (p - dy, q - dx)
            new = lang.compute(
                shape,
                lambda y, x, a=a, b=b, dy=dy, dx=dx: a[y + dy, x] * 2 + b[y, x + dx] - a[y, x],
                name=name,
            )
            used.add(b)
        used.add(a)
        made.append(new)
        sizes[new] = shape
    outputs = [t for t in made[1:] if t not in used or rng.random() < 0.1]
    return lang.program([x], outputs, name="random")


def random_unit(rng: Random, program, machine, *, loops: bool = False) -> UnitPlan:
    """A plan of groups of a program: random groups, and of each a random plan of its structure.

    With producers inside of other producers' ``loops``, where there may be any.
    """
    s = Schedule(program)
    context = Context(program, machine)
    group: dict[str, str] = {}
    outputs = {b.name for b in program.outputs}
    for stage in reversed(program.stages):
        homes = {group[r.name] for name in stage.writes for r in program.consumers(name)}
        alone = len(homes) != 1 or not outputs.isdisjoint(stage.writes) or rng.random() < 0.2
        alone = alone or not is_plain(program, stage) or not is_plain(program, program.stage(min(homes)))
        group[stage.name] = stage.name if alone else homes.pop()
    nests = []
    for root in [st.name for st in program.stages if group[st.name] == st.name]:
        members = tuple(name for name in reversed(group) if group[name] == root and name != root)
        rule = RULES["pipeline"]
        problem = rule.match(context, root, members)
        if problem is None:
            nests.append(Cluster("elementwise", root, (), None, _default("elementwise", context, root)))
        else:
            choice = random_plan(rng, rule, problem, loops=loops)
            nests.append(Cluster("pipeline", root, members, None, choice))
    return UnitPlan(Trace(()) if not s.trace.steps else s.trace, (), asked=tuple(nests))


def random_plan(rng: Random, rule, problem, *, loops: bool = False):
    """A plan of a group, of all that its structure allows: placements are drawn from the readers on."""
    g, space = problem.group, rule.space(problem)
    for _ in range(200):
        plan = replace(
            problem.plan,
            tile=tuple(rng.choice([0, *range(1, n)]) for n in g.axes),
            expand=tuple(rng.choice([1, 1, 1, 2, 3, n]) for n in g.axes),
            vector=rng.choice(space.options["vector"]),
            order=rng.choice(space.options["order"]),
            parallel=rng.choice(space.options["parallel"]),
        )
        places = list(plan.placements)
        for n in reversed(range(len(places))):
            every = space.options["placements"].parts[n]
            options = [option for option in every if loops or not isinstance(option, AtLoop)]
            rng.shuffle(options)
            if rng.random() < 0.3:
                options.sort(key=lambda option: option != "slide")
            elif loops and rng.random() < 0.7:
                options.sort(key=lambda option: not isinstance(option, AtLoop))
            for option in options:
                trial = replace(plan, placements=(*places[:n], option, *places[n + 1 :]))
                if option == "root" or not invalid(g, trial):
                    places[n] = option
                    break
        plan = replace(plan, placements=tuple(places))
        if not invalid(g, plan):
            return plan
    return problem.plan


def _default(name, context, root):
    rule = RULES[name]
    return rule.default(rule.match(context, root, ()))
