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


#: Accumulators of pictures by their element types; all sums that are drawn are exact in them.
SUMS = {"u8": "u16", "u16": "u32", "f32": "f32"}
BORDERS = ("constant", "clamp", "reflect", "symmetric", "wrap")
PICTURE_KINDS = ("rows", "columns", "cross", "point", "mix", "grey", "down", "box", "most")


def random_pictures(rng: Random, stages: int = 4):
    """One pipeline on a picture as two programs: (channels, rows, columns), and interleaved.

    Windows in rows and columns, point-wise stages, mixtures of channels, at one rate or at two, with a border
    around the picture, which may be smaller than what is read of it. Element types and sizes are drawn, too.
    """
    kinds = [rng.choice(PICTURE_KINDS) for _ in range(rng.randint(1, stages))]
    numbers = [[rng.randint(0, 3) for _ in range(6)] for _ in kinds]
    mode, element = rng.choice(BORDERS), rng.choice(tuple(SUMS))
    size = rng.choice((1, 2, 3, rng.randint(4, 9))), rng.choice((1, 2, 3, 7, 64, rng.randint(65, 150)))
    channels = rng.randint(1, 4)
    drawn = (kinds, numbers, mode, element, size, channels)
    return tuple(_pictures(planar, *drawn) for planar in (True, False))


def _pictures(planar, kinds, numbers, mode, element, size, channels):
    def at(y, x, c):
        return (c, y, x) if planar else (y, x, c)

    dtype = SUMS[element]
    image = lang.placeholder(at(*size, channels), element, name="X")
    edge = lang.boundary(image, mode=mode)

    def read(y, x, c):
        return lang.cast(edge[at(y, x, c)], dtype)

    for n, (kind, (a, b, d, e, f, g)) in enumerate(zip(kinds, numbers, strict=True)):

        def value(y, x, c, read=read, kind=kind, a=a, b=b, d=d, e=e, f=f, g=g, now=channels):
            one = lang.const(a + 1, dtype)
            match kind:
                case "rows":
                    return read(y - d, x, c) * one + read(y, x, c) + read(y + e, x, c)
                case "columns":
                    return read(y, x - d, c) * one + read(y, x, c) + read(y, x + e, c)
                case "cross":
                    return read(y - d, x - e, c) + read(y, x, c) * one + read(y + f, x + g, c)
                case "mix":
                    return read(y, x, b % now) * one + read(y, x, c) + read(y, x + d, now - 1)
                case "grey":
                    return read(y, x, 0) * one + read(y, x, now - 1)
                case "box" | "most":
                    k, j = lang.reduce_axis((-d, e + 2), "k"), lang.reduce_axis((-f, g + 1), "j")
                    fold = lang.sum if kind == "box" else lang.max
                    return fold(read(y + k, x + j, c), axis=(k, j))
                case "down":
                    return read(2 * y, 2 * x + d, c) + read(2 * y + 1, 2 * x, c) * one
                case _:
                    return read(y, x, c) * one + lang.const(b, dtype)

        if kind == "grey" and n < len(kinds) - 1:
            made = lang.stage(lambda y, x, f=value: f(y, x, 0), name=f"S{n}")
            read = lambda y, x, c, made=made: made[y, x]  # noqa: E731
            continue
        if planar:
            made = lang.stage(lambda c, y, x, f=value: f(y, x, c), name=f"S{n}")
        else:
            made = lang.stage(lambda y, x, c, f=value: f(y, x, c), name=f"S{n}")
        read = lambda y, x, c, made=made: made[at(y, x, c)]  # noqa: E731
    h, w = (max(1, n // 2) for n in size) if "down" in kinds else size
    return lang.program([image], made, name="pictures", region=list(at(h, w, channels)))
